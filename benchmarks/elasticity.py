"""What a change of the group costs the workers that stay: three agents on loopback and a real etcd.

    python3 -m benchmarks.elasticity --rounds 10
    python3 -m benchmarks.elasticity --rounds 5 --mode restart   # the older way, for comparison

Events, one after the other until each has had its rounds, the victim in turn, rank 0's included:

    kill     SIGKILL to the worker process alone; its node stays and starts another
    vanish   SIGKILL to every process of a node at once; nobody says goodbye
    freeze   SIGSTOP to every process of a node
    drain    SIGTERM to the node's agent, as a kubelet does

After each the node comes back, which is the measurement of `join`. `next` is from the event to the end of
the survivors' first step without the victim, that step itself included; `extra` is what the gap between two
neighbouring steps has over the second one's own time.
"""

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.progress import shown
from tests.trainer.nodes import NAMES, Entry, Nodes, running_etcd, small_data

START_SECONDS = 300


@dataclass(frozen=True)
class Change:
    """One change of the group, in seconds."""

    next_step: float  # event to the end of the new group's first step
    extra: float  # gap between the steps around the change, less the second one's own time
    repeated: int  # steps done again


def main() -> None:
    """Measure, and print a line for each kind of event."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--mode", default="live")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--global-batch", type=int, default=12)
    parser.add_argument("--events", nargs="+", default=["kill", "vanish", "freeze", "drain"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        data = small_data(folder, samples=3000)
        with running_etcd(folder) as etcd:
            line = ["--model", options.model, "--dataset", "fashion-mnist", "--data", str(data)]
            line += ["--global-batch", str(options.global_batch), "--epochs", "100000"]
            nodes = Nodes(folder, etcd, [*line, "--mode", options.mode])
            try:
                measure(nodes, options.events, options.rounds)
            finally:
                nodes.close()


def measure(nodes: Nodes, events: Sequence[str], rounds: int) -> None:
    """All events, their rounds in turn, so that a slow minute of the machine meets each kind alike."""
    for name in NAMES:
        nodes.start(name)
    nodes.next_step(0, 3, START_SECONDS)
    changes: dict[str, list[Change]] = {kind: [] for kind in (*events, "join")}
    for number in shown(range(rounds), "rounds", rounds):
        for kind in events:
            time.sleep(3)
            loss, join = one(nodes, kind, NAMES[number % 3])
            changes[kind].append(loss)
            changes["join"].append(join)
    for kind, seen in changes.items():
        report(kind, seen)
    steps = [float(e["seconds"]) for e in nodes.journal("step")]
    print(f"a step of its own: median {statistics.median(steps):.3f} s, {len(steps)} steps")


def one(nodes: Nodes, kind: str, name: str) -> tuple[Change, Change]:
    """One event, and the node's return."""
    nodes.next_step(time.time() - 1, 3, START_SECONDS)
    act: dict[str, Callable[[], None]] = {
        "kill": lambda: os.kill(nodes.worker(name), signal.SIGKILL),
        "vanish": lambda: nodes.signal_all(name, signal.SIGKILL),
        "freeze": lambda: nodes.signal_all(name, signal.SIGSTOP),
        "drain": lambda: nodes.tell(name, signal.SIGTERM),
    }
    at = time.time()
    act[kind]()
    after = nodes.next_step(at, 2, START_SECONDS)
    time.sleep(1)
    back = time.time()
    if kind == "freeze":
        nodes.signal_all(name, signal.SIGCONT)
    elif kind != "kill":
        nodes.start(name)
    # Of a later group: a worker that was frozen when a sum had arrived writes that step when it is thawed.
    joined = nodes.next_step_where(
        lambda step: step["world_size"] == 3 and step["generation"] > after["generation"],
        START_SECONDS,
        "all three train again",
    )
    return change(nodes, at, after), change(nodes, back, joined)


def change(nodes: Nodes, at: float, first: Entry) -> Change:
    """The change that ended with this step."""
    before = [e for e in nodes.journal("step") if e["at"] < first["at"]]
    gap = first["at"] - before[-1]["at"]
    repeated = max(e["step"] for e in before) + 1 - first["step"]
    return Change(first["at"] - at, gap - first["seconds"], repeated)


def report(kind: str, seen: Sequence[Change]) -> None:
    """One line: median and worst."""
    parts = []
    for name in ("next_step", "extra"):
        values = sorted(getattr(change, name) for change in seen)
        p95 = values[min(len(values) - 1, round(0.95 * (len(values) - 1)))]
        parts.append(
            f"{name} median {statistics.median(values):.3f} s, p95 {p95:.3f}, "
            f"{values[0]:.3f} to {values[-1]:.3f}"
        )
    repeated = [change.repeated for change in seen]
    print(
        f"{kind:7} {len(seen):3} times: {'; '.join(parts)}; steps repeated {sum(repeated)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
