"""Measure false suspicions on a loaded machine, their number and the cost of each, with real agents, workers and etcd.

    python3 -m benchmarks.suspicion --minutes 60 --load 10
    python3 -m benchmarks.suspicion --provoke 20

Three nodes train on this machine.

    --minutes   next to busy processes, without any fault: fences and new groups are false suspicions
    --provoke   all processes of a node are frozen until the other agents fence it, and then continue; a new run
                after every third, since an agent gives a node more time after a false suspicion of it
    --silence   an agent is stopped for a second, without its workers: no change of the group is expected

The cost is the time that is not part of any step, until the first step of all three nodes in a new group. With
--provoke, it is counted from the end of the freeze, since the freeze delays the other nodes even without a suspicion;
otherwise, from the last step of all three nodes before the change.
With --log-lines, the lines of the agents' and workers' logs follow each cost, with the seconds since that moment.
At the end, `trainer.verify` checks that every sample was trained exactly once.
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from benchmarks.progress import track
from tests.trainer.elastic.nodes import (
    NAMES,
    JournalEntry,
    Nodes,
    running_etcd,
    small_data,
)
from tests.trainer.verification import run_verify
from tests.waiting import wait_until

START_SECONDS = 300.0
SETTLE_SECONDS = 3.0  # time for the agents to receive each other's heartbeats
FENCE_SECONDS = 10.0
SILENCE_SECONDS = 1.0  # shorter than a lease
FENCE_LINE = "no heartbeat from"
LOG_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (.*)")


@dataclass(frozen=True)
class Change:
    """A change of the group that no fault required.

    Attributes:
        cost: its cost, in seconds.
        lines: log lines during the change, in order, each with its time in seconds since the beginning and its node.
    """

    cost: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """Figures of one run of three nodes.

    Attributes:
        minutes: duration of the observation without faults.
        loads: 1-minute load averages, at its beginning and after each minute.
        steps: number of recorded steps of the group, including repeated steps.
        false_suspicions: fences without a fault.
        changes: changes of the group without a fault, by a fence or an expired lease.
        provoked: provoked false suspicions.
        silent_agents: number of times that an agent was stopped without its workers.
        verified: last line of `trainer.verify`.
    """

    minutes: float
    loads: tuple[float, ...]
    steps: int
    false_suspicions: int
    changes: tuple[Change, ...]
    provoked: tuple[Change, ...]
    silent_agents: int
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
    parser.add_argument(
        "--silence", type=int, default=0, help="number of stopped agents (%(default)s)"
    )
    parser.add_argument(
        "--log-lines", action="store_true", help="print the lines of the logs during each change"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args()
    results = [observe(options, options.minutes, min(len(NAMES), options.provoke), options.silence)]
    results += [
        observe(options, 0.0, min(len(NAMES), options.provoke - done), 0)
        for done in range(len(NAMES), options.provoke, len(NAMES))
    ]
    figures = combine([figures for figures, _ in results])
    text = sentences(figures, with_lines=options.log_lines)
    print(json.dumps(asdict(figures), indent=1) if options.json else text)
    sys.exit(0 if all(exactly_once for _, exactly_once in results) else 1)


def combine(runs: Sequence[Figures]) -> Figures:
    """Return the first run's figures with the steps, provoked suspicions and verifications of all runs."""
    return replace(
        runs[0],
        steps=sum(run.steps for run in runs),
        provoked=tuple(change for run in runs for change in run.provoked),
        verified="; ".join(run.verified for run in runs),
    )


def observe(
    options: argparse.Namespace, minutes: float, provoked_count: int, silent_count: int
) -> tuple[Figures, bool]:
    """Run three nodes in a new folder; return the figures, and whether each sample was trained exactly once."""
    with tempfile.TemporaryDirectory() as folder:
        return observe_in(Path(folder), options.load, minutes, provoked_count, silent_count)


def observe_in(
    folder: Path, load: int, minutes: float, provoked_count: int, silent_count: int
) -> tuple[Figures, bool]:
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
            provoked = tuple(
                provoke(nodes, folder, name)
                for name in settled_nodes(nodes, provoked_count, "false suspicions")
            )
            started_at, earlier_fences = time.time(), len(fences(folder))
            silence_all(nodes, silent_count)
            loads = wait_under_load(minutes, load)
            changes = tuple(find_changes(nodes.journal("step"), folder, started_at))
            false_suspicions = len(fences(folder)) - earlier_fences
            steps = len(nodes.journal("step"))
            for name in NAMES:
                nodes.signal_agent(name, signal.SIGTERM)
            for name in NAMES:
                nodes.exit_code(name, START_SECONDS)
        finally:
            nodes.close()
        verification, exactly_once = verify(nodes.run)
    figures = Figures(
        minutes, loads, steps, false_suspicions, changes, provoked, silent_count, verification
    )
    return figures, exactly_once


def wait_under_load(minutes: float, busy_count: int) -> tuple[float, ...]:
    """Wait next to busy processes; return the load averages at the beginning and after each minute."""
    loads = [os.getloadavg()[0]]
    with busy_processes(busy_count if minutes else 0):
        intervals = math.ceil(minutes)
        for number in track(range(intervals), "minutes", intervals) if intervals else ():
            time.sleep(60 * min(1.0, minutes - number))
            loads.append(os.getloadavg()[0])
    return tuple(loads)


def find_changes(steps: Sequence[JournalEntry], folder: Path, after: float) -> Iterator[Change]:
    """Yield each change of the group after a time, until all nodes train together again."""
    full_steps = sorted(
        (s for s in steps if s["world_size"] == len(NAMES) and s["at"] > after),
        key=lambda step: float(step["at"]),
    )
    last_full_step: JournalEntry | None = None
    for step in full_steps:
        if last_full_step is None or step["generation"] == last_full_step["generation"]:
            last_full_step = step
        elif step["generation"] > last_full_step["generation"]:
            yield change_between(steps, folder, last_full_step["at"], step["at"])
            last_full_step = step


def change_between(steps: Sequence[JournalEntry], folder: Path, begin: float, end: float) -> Change:
    """Return the change of the group between two times."""
    lines = (line for log in folder.glob("w*.log") for line in lines_between(log, begin, end))
    return Change(
        between_steps(steps, begin, end),
        tuple(f"{at - begin:+.3f} {name} {text}" for at, name, text in sorted(lines)),
    )


def lines_between(log: Path, begin: float, end: float) -> Iterator[tuple[float, str, str]]:
    """Yield time, node and text of a log's lines from a second before `begin` until `end`."""
    for line in log.read_text(errors="replace").splitlines():
        if match := LOG_LINE.match(line):
            at = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f").astimezone().timestamp()
            if begin - 1 <= at <= end:
                yield at, log.stem, match[2]


def settled_nodes(nodes: Nodes, count: int, label: str) -> Iterator[str]:
    """Yield each node in turn, as soon as all three train and their heartbeats are steady."""
    for number in track(range(count), label, count) if count else ():
        nodes.next_step(time.time(), 3, START_SECONDS)
        time.sleep(SETTLE_SECONDS)
        yield NAMES[number % len(NAMES)]


def silence_all(nodes: Nodes, count: int) -> None:
    """Stop the agent of each node in turn for a second, without its workers."""
    for name in settled_nodes(nodes, count, "silent agents"):
        nodes.signal_agent(name, signal.SIGSTOP)
        time.sleep(SILENCE_SECONDS)
        nodes.signal_agent(name, signal.SIGCONT)


def provoke(nodes: Nodes, folder: Path, name: str) -> Change:
    """Freeze a node until the others fence it; return the change of the group from the end of the freeze."""
    fence_count = len(fences(folder))
    last_generation = max(int(step["generation"]) for step in nodes.journal("step"))
    nodes.signal_all(name, signal.SIGSTOP)
    try:
        wait_until(
            lambda: len(fences(folder)) > fence_count,
            f"{name} is fenced",
            FENCE_SECONDS,
            interval_seconds=0.005,
        )
    finally:
        started_at = time.time()
        nodes.signal_all(name, signal.SIGCONT)
    first_step = nodes.next_step_where(
        lambda step: step["world_size"] == len(NAMES) and step["generation"] > last_generation,
        START_SECONDS,
        "all three train again",
    )
    return change_between(nodes.journal("step"), folder, started_at, first_step["at"])


def between_steps(steps: Sequence[JournalEntry], begin: float, end: float) -> float:
    """Return the seconds that are part of no step, between two times."""
    sorted_steps = sorted(steps, key=lambda step: float(step["at"]))
    return sum(
        max(0.0, float(later["at"]) - max(begin, float(earlier["at"])) - float(later["seconds"]))
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
        for process in processes:
            process.join()


def _compute() -> None:
    while True:
        sum(range(10_000))


def verify(run: Path) -> tuple[str, bool]:
    """Return the last line of `trainer.verify`, and whether each sample was trained exactly once."""
    result = run_verify(run)
    lines = (result.stdout + result.stderr).strip().splitlines()
    return lines[-1] if lines else "", result.returncode == 0


def sentences(figures: Figures, *, with_lines: bool) -> str:
    """Return the figures as text, with the lines of the logs if desired."""
    lines = [f"{figures.steps} steps; {figures.verified}"]
    if figures.minutes:
        lines.append(
            f"{figures.minutes:g} min at load {min(figures.loads):.1f} to {max(figures.loads):.1f}, "
            f"median {statistics.median(figures.loads):.1f}: {figures.false_suspicions} false "
            f"suspicions, {len(figures.changes)} unnecessary changes of the group"
        )
    if figures.silent_agents:
        lines.append(
            f"{figures.silent_agents} agents were silent for {SILENCE_SECONDS:g} s: "
            f"{len(figures.changes)} changes of the group"
        )
    for change in (*figures.provoked, *figures.changes):
        lines.append(f"a change cost {change.cost:.3f} s")
        lines += [f"    {line}" for line in change.lines if with_lines]
    if figures.provoked:
        costs = sorted(change.cost for change in figures.provoked)
        p95 = costs[round(0.95 * (len(costs) - 1))]
        lines.append(
            f"{len(costs)} provoked: median {statistics.median(costs):.3f} s, p95 {p95:.3f}, "
            f"{costs[0]:.3f} to {costs[-1]:.3f}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
