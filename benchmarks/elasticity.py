"""Measure the cost of a change of the group for the remaining workers: three agents on loopback, a real etcd.

    python3 -m benchmarks.elasticity --rounds 10

Events take turns until each has completed its rounds; the victim rotates over all nodes, including rank 0:

    kill     SIGKILL to only the worker process; its node stays and starts a new process
    vanish   SIGKILL to all processes of a node, without notice
    freeze   SIGSTOP to all processes of a node
    drain    SIGTERM to the node's agent, as a kubelet does

After each event the node returns, and its return is measured as `join`. `next_step` is the time from the event, or
from the return, to the end of the new group's first step, including that step itself. `extra` is the gap between two
consecutive steps minus the duration of the second step.
"""

import argparse
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.progress import track
from benchmarks.schedules import KINDS, act
from tests.trainer.elastic.nodes import NAMES, JournalEntry, Nodes, running_etcd, small_data

START_SECONDS = 300


@dataclass(frozen=True)
class GroupChange:
    """One change of the group; durations in seconds."""

    next_step: float  # event to the end of the new group's first step
    extra: float  # gap between the steps around the change minus the duration of the second step
    repeated_steps: int


def main() -> None:
    """Measure and print a line for each kind of event."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--mode", default="live", choices=["live", "exact"])
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--global-batch", type=int, default=12)
    parser.add_argument("--events", nargs="+", default=KINDS, choices=KINDS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = small_data(folder, samples=3000)
        with running_etcd(folder) as etcd:
            arguments = [
                "--model",
                options.model,
                "--dataset",
                "fashion-mnist",
                "--data",
                str(data),
            ]
            arguments += ["--global-batch", str(options.global_batch), "--epochs", "100000"]
            nodes = Nodes(folder, etcd, [*arguments, "--mode", options.mode])
            try:
                measure(nodes, options.events, options.rounds)
            finally:
                nodes.close()


def measure(nodes: Nodes, events: Sequence[str], rounds: int) -> None:
    """Measure all events in turn, so that a slow minute of the machine affects all kinds equally."""
    for name in NAMES:
        nodes.start(name)
    nodes.next_step(0, 3, START_SECONDS)
    changes: dict[str, list[GroupChange]] = {kind: [] for kind in (*events, "join")}
    for number in track(range(rounds), "rounds", rounds):
        for kind in events:
            time.sleep(3)
            departure, join = measure_event(nodes, kind, NAMES[number % 3])
            changes[kind].append(departure)
            changes["join"].append(join)
    for kind, group_changes in changes.items():
        report(kind, group_changes)
    steps = [float(e["seconds"]) for e in nodes.journal("step")]
    print(f"a single step: median {statistics.median(steps):.3f} s, {len(steps)} steps")


def measure_event(nodes: Nodes, kind: str, name: str) -> tuple[GroupChange, GroupChange]:
    """Measure one event and the node's return."""
    nodes.next_step(time.time() - 1, 3, START_SECONDS)
    event_time = time.time()
    act(nodes, kind, name)
    first_step = nodes.next_step(event_time, 2, START_SECONDS)
    time.sleep(1)
    returned_at = time.time()
    if kind == "freeze":
        nodes.signal_all(name, signal.SIGCONT)
    elif kind != "kill":
        nodes.start(name)
    # Only a later group counts: a worker that was frozen after an all-reduce records that step when it resumes.
    joined_step = nodes.next_step_where(
        lambda step: step["world_size"] == 3 and step["generation"] > first_step["generation"],
        START_SECONDS,
        "all three train again",
    )
    return change(nodes, event_time, first_step), change(nodes, returned_at, joined_step)


def change(nodes: Nodes, event_time: float, first_step: JournalEntry) -> GroupChange:
    """Return the change that ended with the first step of the new group."""
    earlier_steps = [step for step in nodes.journal("step") if step["at"] < first_step["at"]]
    # A worker that was frozen records a step of the previous group when it resumes: it is not the last step.
    last_step = max(earlier_steps, key=lambda step: (step["generation"], step["at"]))
    gap = first_step["at"] - last_step["at"]
    repeated_steps = max(step["step"] for step in earlier_steps) + 1 - first_step["step"]
    return GroupChange(first_step["at"] - event_time, gap - first_step["seconds"], repeated_steps)


def report(kind: str, changes: Sequence[GroupChange]) -> None:
    """Print one line with median, 95th percentile and range."""
    parts = []
    for name in ("next_step", "extra"):
        values = sorted(getattr(change, name) for change in changes)
        p95 = values[round(0.95 * (len(values) - 1))]
        parts.append(
            f"{name} median {statistics.median(values):.3f} s, p95 {p95:.3f}, "
            f"{values[0]:.3f} to {values[-1]:.3f}"
        )
    repeated_steps = sum(change.repeated_steps for change in changes)
    print(
        f"{kind:7} {len(changes):3} times: {'; '.join(parts)}; steps repeated {repeated_steps}",
        flush=True,
    )


if __name__ == "__main__":
    main()
