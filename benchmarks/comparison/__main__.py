"""Compare Everstep's `live` with torchft and torchrun on one machine, with the same model and events.

    make .venv/.comparison
    .venv/bin/python -m benchmarks.comparison --rounds 3 [--only everstep torchft] [--json]

Three nodes train ResNet-18 on random images of 28 pixels, 12 samples per step. The systems take turns,
each event with new processes, so that a slow minute of this machine affects all of them:

* kill: only the training process gets SIGKILL;
* freeze: all processes of a node stop and, after the survivors' next step, continue;
* drain: the node's launcher gets SIGTERM, and is started again after the survivors' next step;
* join: the return after the drain.

`next step` is from the event to the end of the first step that survivors began after it; for a join, from the
end of the last step without the node to the end of the first step with it. `lost` is the number of steps computed
again or dropped. Samples are counted over complete epochs.
"""

import argparse
import itertools
import json
import math
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.comparison.nodes import Node
from benchmarks.comparison.systems import NAMES, SYSTEMS, System
from benchmarks.comparison.workload import SAMPLES, JournalLine, read, read_commits
from benchmarks.progress import track
from tests.waiting import wait_until

EVENTS = ("kill", "freeze", "drain")
START_SECONDS, EVENT_SECONDS, QUIET_SECONDS = 180.0, 120.0, 5.0


@dataclass(frozen=True)
class Disruption:
    """Times and lost steps of one event; all are infinite if the survivors' step or the node's return timed out.

    Attributes:
        next_step: seconds to the end of the survivors' next step.
        lost: number of steps that were computed again or dropped by the survivors.
        join: seconds between the last step before the node's return and the first step with it.
    """

    next_step: float
    lost: float
    join: float


NEVER = Disruption(math.inf, math.inf, math.inf)


@dataclass(frozen=True)
class Figures:
    """Results of one system and one event.

    Attributes:
        event: the event, one of EVENTS.
        disruption: times of the event.
        step_seconds: median duration of a committed step.
        samples: number of samples of the complete epochs.
        samples_twice: number of these samples that were trained more than once.
        samples_missing: number of these samples that no committed step trained.
    """

    event: str
    disruption: Disruption
    step_seconds: float
    samples: int
    samples_twice: int
    samples_missing: int


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    names = [system.name for system in SYSTEMS]
    parser.add_argument("--only", nargs="+", default=names, choices=names)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    systems = [system for system in SYSTEMS if system.name in options.only]
    turns = list(itertools.product(range(options.rounds), EVENTS, systems))
    results: dict[str, list[Figures]] = {system.name: [] for system in systems}
    for number, event, system in track(turns, "turns", len(turns)):
        results[system.name].append(measure(system, event, number))
    if options.json:
        json.dump(
            {name: [asdict(run) for run in runs] for name, runs in results.items()}, sys.stdout
        )
    else:
        print(table(results))


def measure(system: System, event: str, number: int) -> Figures:
    """Start three nodes and disrupt one of them, in each round a different node."""
    with (
        tempfile.TemporaryDirectory(prefix="comparison-") as scratch,
        system.machines(folder := Path(scratch)) as machines,
    ):
        try:
            for machine in machines:
                machine.start()
            wait_for_group(folder, time.time(), len(NAMES), START_SECONDS)
            time.sleep(QUIET_SECONDS)
            disruption = disrupt(folder, event, machines[number % len(machines)])
            time.sleep(QUIET_SECONDS)
        finally:
            for machine in machines:
                machine.close()
        return figures(list(read(folder)), event, disruption)


def disrupt(folder: Path, event: str, victim: Node) -> Disruption:
    """Apply an event and bring the node back."""
    last_step = max(line.step for line in read_commits(folder))
    {
        "kill": victim.kill_worker,
        "freeze": lambda: victim.signal_all(signal.SIGSTOP),
        "drain": victim.drain,
    }[event]()
    disrupted_at = time.time()  # only now have all processes of the node stopped
    survivors = {name for name in NAMES if name != victim.name}
    try:
        first_line = wait_for_step(folder, disrupted_at, survivors)
        time.sleep(1)
        returned_at = time.time()
        if event == "freeze":
            victim.signal_all(signal.SIGCONT)
        elif event == "drain":
            victim.start()
        join_line = wait_for_group(folder, returned_at, len(NAMES), EVENT_SECONDS)
    except AssertionError:  # the wait timed out
        return NEVER
    before_join_at = max(line.at for line in read_commits(folder) if line.at < join_line.at)
    lost_steps = max(0, last_step + 1 - first_line.step)
    return Disruption(first_line.at - disrupted_at, lost_steps, join_line.at - before_join_at)


def wait_for_step(folder: Path, start: float, nodes: Iterable[str]) -> JournalLine:
    """Return the first step that one of these nodes began after a time and committed."""
    names = set(nodes)

    def first_line() -> JournalLine | None:
        steps = [
            line
            for line in read_commits(folder)
            if line.node in names and line.at - (line.seconds or 0.0) > start
        ]
        return min(steps, key=_time, default=None)

    return wait_until(first_line, "the survivors take a step", EVENT_SECONDS)


def wait_for_group(folder: Path, start: float, size: int, seconds: float) -> JournalLine:
    """Return the first step that a group of this size committed after a time."""

    def first_line() -> JournalLine | None:
        steps = [
            line for line in read_commits(folder) if line.at > start and line.world_size == size
        ]
        return min(steps, key=_time, default=None)

    return wait_until(first_line, f"{size} nodes take a step", seconds)


def figures(lines: Sequence[JournalLine], event: str, disruption: Disruption) -> Figures:
    """Return the counts of samples and the median duration of a step.

    A step that was computed again counts once, with its last samples: the first result was discarded.
    The last two epochs do not count: nodes that draw their own samples may be one epoch apart.
    """
    commits = {line.step: line for line in sorted(lines, key=_time) if line.seconds is not None}
    last_lines = {(line.step, line.node): line for line in sorted(lines, key=_time)}
    counts = Counter(
        sample
        for line in last_lines.values()
        if line.step in commits and line.world_size == commits[line.step].world_size
        for sample in line.samples
    )
    sample_count = max(0, max(counts, default=0) // SAMPLES - 1) * SAMPLES
    counts = Counter({sample: count for sample, count in counts.items() if sample < sample_count})
    return Figures(
        event=event,
        disruption=disruption,
        step_seconds=statistics.median(line.seconds for line in lines if line.seconds is not None),
        samples=sample_count,
        samples_twice=sum(1 for count in counts.values() if count > 1),
        samples_missing=sample_count - len(counts),
    )


def _time(line: JournalLine) -> float:
    return line.at


def table(results: Mapping[str, Sequence[Figures]]) -> str:
    """Return a line for each figure, with the median and the range over the rounds."""
    rows = [["", *results], ["---"] * (len(results) + 1)]
    for event in EVENTS:
        rows.append(
            _row(f"{event}: next step, s", results, event, lambda disruption: disruption.next_step)
        )
        rows.append(
            _row(f"{event}: steps lost", results, event, lambda disruption: disruption.lost)
        )
    rows.append(_row("join: next step, s", results, "drain", lambda disruption: disruption.join))
    for name in ("step_seconds", "samples_twice", "samples_missing"):
        columns = [[getattr(run, name) for run in figures] for figures in results.values()]
        rows.append([name.replace("_", " "), *map(spread, columns)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _row(
    title: str,
    results: Mapping[str, Sequence[Figures]],
    event: str,
    value: Callable[[Disruption], float],
) -> list[str]:
    cells = [
        spread([value(run.disruption) for run in figures if run.event == event])
        for figures in results.values()
    ]
    return [title, *cells]


def spread(values: Sequence[float]) -> str:
    """Return the median and the range of values as text."""
    median = statistics.median(values)
    return f"{median:.3g} ({min(values):.3g} to {max(values):.3g})"


if __name__ == "__main__":
    main()
