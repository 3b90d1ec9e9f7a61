"""Measure the trainer's throughput, recovery and accuracy: three agents on loopback and a real etcd.

    python3 -m benchmarks.trainer throughput              # images/s with 1, 2 and 3 workers
    python3 -m benchmarks.trainer recovery --rounds 5     # each event, median and maximum
    python3 -m benchmarks.trainer accuracy --epochs 1     # the whole run of the local stack

Fashion-MNIST comes from Debian's dataset-fashion-mnist, or from --source.
"""

import argparse
import json
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.progress import track
from tests.trainer.elastic.nodes import NAMES, Nodes, running_etcd
from trainer.prepare import DEBIAN_FOLDER, prepare_fashion_mnist

START_SECONDS = 300


def main() -> None:
    """Run the selected measurement and print one line for each figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("measurement", choices=["throughput", "recovery", "accuracy"])
    parser.add_argument("--source", type=Path, default=DEBIAN_FOLDER)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--global-batch", type=int, default=384)
    parser.add_argument("--learning-rate", type=float, default=0.2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepare_fashion_mnist(options.source, folder / "data")
        with running_etcd(folder) as etcd:
            measure = {"throughput": throughput, "recovery": recovery, "accuracy": accuracy}
            measure[options.measurement](folder, etcd, options)


def begin(
    folder: Path,
    etcd: str,
    options: argparse.Namespace,
    names: tuple[str, ...],
    *further_options: str,
) -> Nodes:
    """Start the nodes of one job."""
    arguments = ["--model", "resnet18", "--dataset", "fashion-mnist"]
    arguments += ["--data", str(folder / "data"), "--global-batch", str(options.global_batch)]
    arguments += ["--learning-rate", str(options.learning_rate)]
    nodes = Nodes(folder, etcd, [*arguments, *further_options])
    for name in names:
        nodes.start(name)
    return nodes


def throughput(folder: Path, etcd: str, options: argparse.Namespace) -> None:
    """Measure images per second for each world size, without the first two steps."""
    for count in (1, 2, 3):
        nodes = begin(
            folder, etcd, options, NAMES[:count], "--max-steps", "14", f"--fresh=of-{count}"
        )
        try:
            for name in NAMES[:count]:
                nodes.exit_code(name, START_SECONDS)
            steps = [step for step in nodes.journal("step") if step["world_size"] == count][2:]
        finally:
            nodes.close()
        speed = sum(step["images"] for step in steps) / sum(step["seconds"] for step in steps)
        print(
            f"{count} worker(s): {speed:.0f} images/s over {len(steps)} steps of {options.global_batch}"
        )


def recovery(folder: Path, etcd: str, options: argparse.Namespace) -> None:
    """Measure the time from each event to the survivors' next step, the repeated steps and the pause at a return."""
    nodes = begin(folder, etcd, options, NAMES, "--epochs", "50")
    events: dict[str, Callable[[str], None]] = {
        "drain": lambda name: nodes.signal_agent(name, signal.SIGTERM),
        "vanish": lambda name: nodes.signal_all(name, signal.SIGKILL),
        "freeze": lambda name: nodes.signal_all(name, signal.SIGSTOP),
    }
    try:
        for kind, inject in events.items():
            rounds = [
                _measure_event(nodes, kind, inject, NAMES[number % 3])
                for number in track(range(options.rounds), kind, options.rounds)
            ]
            seconds, repeated_steps, joins = zip(*rounds, strict=True)
            print(
                f"{kind}: next step after {statistics.median(seconds):.1f} s (worst {max(seconds):.1f}), "
                f"steps repeated {max(repeated_steps)}; pause at the return {statistics.median(joins):.1f} s"
            )
    finally:
        nodes.close()


def _measure_event(
    nodes: Nodes, kind: str, inject: Callable[[str], None], name: str
) -> tuple[float, int, float]:
    """Measure one event and the return: seconds to the next step, repeated steps, pause at the join."""
    nodes.next_step(time.time() - 5, 3, START_SECONDS)
    event_time = time.time()
    inject(name)
    first_step = nodes.next_step(event_time, 2, START_SECONDS)
    highest_step = max(
        step["step"] for step in nodes.journal("step") if step["at"] < first_step["at"]
    )
    if kind == "freeze":
        nodes.signal_all(name, signal.SIGCONT)
    else:
        nodes.start(name)
    # Only a later group counts: a worker that was frozen after an all-reduce records that step when it resumes.
    joined_step = nodes.next_step_where(
        lambda step: step["world_size"] == 3 and step["generation"] > first_step["generation"],
        START_SECONDS,
        "all three train again",
    )
    earlier_steps = [step for step in nodes.journal("step") if step["at"] < joined_step["at"]]
    last_step_before_join = max(earlier_steps, key=lambda step: (step["generation"], step["at"]))
    return (
        first_step["at"] - event_time,
        highest_step + 1 - first_step["step"],
        joined_step["at"] - last_step_before_join["at"],
    )


def accuracy(folder: Path, etcd: str, options: argparse.Namespace) -> None:
    """Measure the accuracy of a whole undisturbed run with three workers."""
    started_at = time.monotonic()
    nodes = begin(folder, etcd, options, NAMES, "--epochs", str(options.epochs))
    try:
        codes = [nodes.exit_code(name, 3600) for name in NAMES]
    finally:
        nodes.close()
    result = json.loads((nodes.run / "result.json").read_text())
    print(f"exit codes {codes}, {time.monotonic() - started_at:.0f} s in all, {result}")


if __name__ == "__main__":
    main()
