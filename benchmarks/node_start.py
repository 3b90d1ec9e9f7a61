"""Measure what the start of a node costs until its worker has taken a step.

    python -m benchmarks.node_start
    python -m benchmarks.node_start --rounds 9 --json

Each round runs `everstep launch` with a script of one worker that takes one step of an optimizer. CPU time is the sum
over all its processes: launcher, fork server, worker and etcd. Memory is the largest sum of their resident memory in
samples; pages that several share count once. The first round, which fills the caches, does not count.
Needs an etcd program: on PATH, or named by EVERSTEP_ETCD.
"""

import argparse
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.preview import EVERSTEP, adopt_orphans, run, spread
from benchmarks.progress import track
from tests.processes import descendants, pss_kibibytes

SAMPLE_SECONDS = (
    0.1  # a sample takes a few milliseconds, in this process, whose time is not counted
)

SCRIPT = """
import torch

parameter = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([parameter], lr=0.1)
parameter.sum().backward()
optimizer.step()
"""


def main() -> None:
    """Print the figures, as lines or as JSON."""
    parser = argparse.ArgumentParser(description="Measure the start of a node.")
    parser.add_argument("--rounds", type=int, default=5, help="measured starts; the default is 5")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="everstep-node-start-") as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        figures = measure(script, options.rounds)
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    for name, figure in figures.items():
        print(f"{name}: {figure['median']} ({figure['min']} to {figure['max']})")


def measure(script: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return the median and the range of each figure over the rounds."""
    starts, peaks = [], []
    for number in track(range(rounds + 1), "starts", rounds + 1):
        with memory_samples() as samples:
            start = run([str(EVERSTEP), "launch", str(script)], dict(os.environ))
        if number:
            starts.append(start)
            peaks.append(max(samples))
    return {
        "wall_seconds": spread(start.wall_seconds for start in starts),
        "cpu_seconds": spread(start.cpu_seconds for start in starts),
        "peak_mebibytes": spread(peaks),
    }


@contextmanager
def memory_samples() -> Iterator[list[float]]:
    """Yield the samples of the memory of all descendants, which are complete at the end."""
    samples: list[float] = []
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            try:
                processes = descendants(os.getpid())
            except OSError:  # a process has just ended
                continue
            samples.append(sum(map(pss_kibibytes, processes)) / 1024)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()
