"""Measure false suspicions on a loaded machine, their number and the cost of each, with real agents, workers and etcd.

    python3 -m benchmarks.suspicion --minutes 60 --load 10
    python3 -m benchmarks.suspicion --provoke 20

Three nodes train on this machine.

    --minutes   next to busy processes, without any fault: every fence is a false suspicion
    --provoke   an agent is stopped, without its worker, until the other agents fence its node

The cost is the time between steps, from the event to the first step of all three nodes: the changes of the group,
without the steps themselves. At the end, `trainer.verify` checks that every sample was trained exactly once.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.progress import track
from tests.trainer.elastic.nodes import (
    NAMES,
    REPOSITORY,
    JournalEntry,
    Nodes,
    running_etcd,
    small_data,
    wait_until,
)

START_SECONDS = 300.0
SETTLE_SECONDS = 3.0  # the agents know each other's heartbeats
FENCE_SECONDS = 10.0
POLL_SECONDS = 5.0
FENCE_LINE = "no heartbeat of"


@dataclass(frozen=True)
class Figures:
    """Figures of one run of three nodes.

    Attributes:
        minutes: duration of the observation without faults.
        load: average number of running processes at its end.
        steps: total number of steps of all workers.
        false_suspicions: fences without a fault.
        costs: seconds of each provoked false suspicion.
        verified: last line of `trainer.verify`.
    """

    minutes: float
    load: float
    steps: int
    false_suspicions: int
    costs: tuple[float, ...]
    verified: str


def main() -> None:
    """Run and print the figures; exit with 1 if a sample was missing or trained twice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="duration of the observation (%(default)s)"
    )
    parser.add_argument("--load", type=int, default=10, help="busy processes (%(default)s)")
    parser.add_argument(
        "--provoke", type=int, default=0, help="number of provoked suspicions (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        figures, exactly_once = observe(Path(scratch), options)
    print(json.dumps(asdict(figures), indent=1) if options.json else sentences(figures))
    sys.exit(0 if exactly_once else 1)


def observe(folder: Path, options: argparse.Namespace) -> tuple[Figures, bool]:
    """Run three nodes; return the figures, and whether each sample was trained exactly once."""
    data = small_data(folder, samples=3000)
    arguments = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    arguments += ["--global-batch", "12", "--epochs", "100000", "--checkpoint-seconds", "5"]
    with running_etcd(folder) as etcd:
        nodes = Nodes(folder, etcd, arguments)
        try:
            for name in NAMES:
                nodes.start(name)
            nodes.next_step(0, 3, START_SECONDS)
            costs = tuple(provoke_all(nodes, folder, options.provoke))
            false_suspicions, load = wait_under_load(folder, options.minutes, options.load)
            steps = len(nodes.journal("step"))
            for name in NAMES:
                nodes.signal_agent(name, signal.SIGTERM)
            for name in NAMES:
                nodes.exit_code(name, START_SECONDS)
        finally:
            nodes.close()
        verification, exactly_once = verify(nodes.run)
    figures = Figures(options.minutes, load, steps, false_suspicions, costs, verification)
    return figures, exactly_once


def wait_under_load(folder: Path, minutes: float, busy_count: int) -> tuple[int, float]:
    """Return the number of fences next to busy processes, and the load at the end."""
    earlier_fences = len(fences(folder))
    with busy_processes(busy_count if minutes else 0):
        intervals = round(60 * minutes / POLL_SECONDS)
        for _ in track(range(intervals), "intervals", intervals) if intervals else ():
            time.sleep(POLL_SECONDS)
        load = os.getloadavg()[0]
        return len(fences(folder)) - earlier_fences, load


def provoke_all(nodes: Nodes, folder: Path, count: int) -> Iterator[float]:
    """Yield the cost of each false suspicion."""
    for number in track(range(count), "false suspicions", count) if count else ():
        nodes.next_step(time.time(), 3, START_SECONDS)
        time.sleep(SETTLE_SECONDS)
        yield provoke(nodes, folder, NAMES[number % len(NAMES)])


def provoke(nodes: Nodes, folder: Path, name: str) -> float:
    """Stop an agent until the others fence its node; return the time between the steps around the fence."""
    fence_count = len(fences(folder))
    started_at = time.time()
    nodes.signal_agent(name, signal.SIGSTOP)
    try:
        wait_until(lambda: len(fences(folder)) > fence_count, FENCE_SECONDS, f"{name} is fenced")
    finally:
        nodes.signal_agent(name, signal.SIGCONT)
    last_generation = max(
        int(step["generation"]) for step in nodes.journal("step") if step["at"] < started_at
    )
    first_step = nodes.next_step_where(
        lambda step: step["world_size"] == len(NAMES) and step["generation"] > last_generation,
        START_SECONDS,
        "all three train again",
    )
    return between_steps(nodes.journal("step"), started_at, first_step["at"])


def between_steps(steps: Sequence[JournalEntry], begin: float, end: float) -> float:
    """Return the seconds that are part of no step, between two times."""
    sorted_steps = sorted(steps, key=lambda step: float(step["at"]))
    return sum(
        max(0.0, float(later["at"]) - float(earlier["at"]) - float(later["seconds"]))
        for earlier, later in itertools.pairwise(sorted_steps)
        if begin < later["at"] <= end
    )


def fences(folder: Path) -> list[str]:
    """Return the lines of the agents' logs that report a fence."""
    return [
        line
        for log in sorted(folder.glob("w*.log"))
        for line in log.read_text(errors="replace").splitlines()
        if FENCE_LINE in line
    ]


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Run processes that only compute."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_compute, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()


def _compute() -> None:
    while True:
        sum(range(10_000))


def verify(run: Path) -> tuple[str, bool]:
    """Return the last line of `trainer.verify`, and whether each sample was trained exactly once."""
    command = [sys.executable, "-m", "trainer.verify", str(run)]
    result = subprocess.run(command, check=False, cwd=REPOSITORY, capture_output=True, text=True)
    lines = (result.stdout + result.stderr).strip().splitlines()
    return lines[-1] if lines else "", result.returncode == 0


def sentences(figures: Figures) -> str:
    """Return the figures as text."""
    lines = [f"{figures.steps} steps; {figures.verified}"]
    if figures.minutes:
        lines.append(
            f"{figures.minutes:g} min at load {figures.load:.1f}: "
            f"{figures.false_suspicions} false suspicions"
        )
    if figures.costs:
        costs = sorted(figures.costs)
        p95 = costs[round(0.95 * (len(costs) - 1))]
        lines.append(
            f"{len(costs)} provoked: median {statistics.median(costs):.3f} s, p95 {p95:.3f}, "
            f"{costs[0]:.3f} to {costs[-1]:.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
