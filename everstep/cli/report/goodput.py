"""The use of a run's time: workers' seconds, goodput, and an estimate for a design that restarts.

Pure functions of a `RunRecord`; `report.build` combines them, `goodput_screen` draws them.

*Goodput* has its usual meaning (Google's runtime goodput, Meta's effective training time ratio):
productive time as a share of elapsed time. Productive is the time of counted steps, each step once, as
measured by rank 0; repeated steps, pauses, start-up, checkpoint stalls and evaluation are not. Elapsed
is the wall-clock time from the first worker process's start to the run's end, less the time without any
machine, which no design can use. A second with fewer machines counts in full; `worker_share` weights by
workers.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from everstep import goodput as model
from everstep.cli.report.group_changes import GroupChange, group_changes
from everstep.cli.report.run_record import RunRecord, StepRecord, is_number
from everstep.cli.report.timeline import NodeState, NodeTimeline, node_timelines, span
from everstep.elastic.accounting.time_account import Activity
from everstep.goodput import ChangeCause, MachineChange

STEP_ACTIVITIES = (Activity.DATA, Activity.COMPUTE, Activity.EXCHANGE)
"""Activities of a step. If the group is lost during a step, the accounting reassigns its time to other activities."""

LIVE_MODES = ("live", "exact")
UNKNOWN_CHECKPOINT_SECONDS = 60.0
"""Interval of checkpoints if the journal has none."""


@dataclass(frozen=True)
class WorkerSeconds:
    """Seconds of one worker, all its processes together, by `time_account.Activity`."""

    worker: str
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Goodput:
    """Productive share of a run's time; docs/report.md has the definitions."""

    share: float
    worker_share: float | None
    elapsed_seconds: float
    productive_seconds: float
    redone_seconds: float
    absent_seconds: float


@dataclass(frozen=True)
class RestartEstimate:
    """Modeled cost of the same history for a design that restarts its workers.

    `ended_at` is the Unix time of the first drain, which ends a torchrun job permanently; None without a drain.
    """

    goodput: float
    lost_seconds: float
    live_lost_seconds: float
    changes: int
    ended_at: float | None
    assumptions: tuple[str, ...]


def worker_seconds(run: RunRecord) -> tuple[WorkerSeconds, ...]:
    """Return the seconds of each worker, sorted by worker; empty if the journals have no such entries."""
    totals: dict[str, dict[str, float]] = {}
    newest: dict[str, dict[str, float]] = {}
    for entry in run.entries:
        if entry.kind == "start":  # a new process counts from 0 again
            _add(totals.setdefault(entry.worker, {}), newest.pop(entry.worker, {}))
        elif entry.kind == "seconds":
            newest[entry.worker] = _activity_seconds(entry.values)
    for worker, activities in newest.items():
        _add(totals.setdefault(worker, {}), activities)
    return tuple(
        WorkerSeconds(worker, activities)
        for worker, activities in sorted(totals.items())
        if activities
    )


def _activity_seconds(values: Mapping[str, object]) -> dict[str, float]:
    values_by_name = ((name.value, values.get(name.value)) for name in Activity)
    return {name: float(value) for name, value in values_by_name if is_number(value)}


def _add(totals: dict[str, float], increments: Mapping[str, float]) -> None:
    for name, value in increments.items():
        totals[name] = totals.get(name, 0.0) + value


def total(workers: Sequence[WorkerSeconds]) -> dict[str, float]:
    """Return the sum of all workers' seconds by name."""
    totals: dict[str, float] = {}
    for worker in workers:
        _add(totals, worker.seconds)
    return totals


def goodput(run: RunRecord) -> Goodput | None:
    """Return the productive share of the run's time; None before its first step."""
    if not run.steps or not run.starts:
        return None
    _, end = span(run, run.entries[-1].at)
    absent_time = absent_seconds(run)
    elapsed_seconds = max(end - _started_at(run) - absent_time, 0.0)
    counted, redone_steps = divide_steps(run.steps)
    productive_seconds = sum(step.seconds for step in counted)
    return Goodput(
        share=min(productive_seconds / elapsed_seconds, 1.0) if elapsed_seconds else 0.0,
        worker_share=_worker_share(run, redone_steps),
        elapsed_seconds=elapsed_seconds,
        productive_seconds=productive_seconds,
        redone_seconds=sum(step.seconds for step in redone_steps),
        absent_seconds=absent_time,
    )


def counted_steps(steps: Sequence[StepRecord]) -> Sequence[StepRecord]:
    """Return the counted steps by time; of a repeated step, the last repetition."""
    return divide_steps(steps)[0]


def divide_steps(steps: Sequence[StepRecord]) -> tuple[list[StepRecord], list[StepRecord]]:
    """Divide steps into counted and redone steps, both by time; a block is divided in proportion."""
    counted: list[StepRecord] = []
    redone: list[StepRecord] = []
    later_steps = _Numbers()
    for step in reversed(steps):
        count = later_steps.add(step.step - step.count + 1, step.step)
        if count:
            counted.append(_part(step, count, step.step - step.count + count))
        if count < step.count:
            redone.append(_part(step, step.count - count, step.step))
    return counted[::-1], redone[::-1]


def _part(block: StepRecord, count: int, last: int) -> StepRecord:
    """Return `count` steps of a block, up to the number `last`."""
    if count == block.count:
        return block
    share = count / block.count
    seconds, images = block.seconds * share, round(block.images * share)
    return replace(block, step=last, count=count, seconds=seconds, images=images)


class _Numbers:
    """A set of numbers as disjoint ranges, which are few: the steps of a run have hardly any gaps."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []  # first and last number, ascending

    def add(self, first: int, last: int) -> int:
        """Add the numbers from `first` to `last`; return how many are new."""
        begin = bisect_left(self._ranges, first - 1, key=lambda item: item[1])
        end = bisect_right(self._ranges, last + 1, key=lambda item: item[0])
        touched = self._ranges[begin:end]
        present = sum(max(min(last, b) - max(first, a) + 1, 0) for a, b in touched)
        lowest = min([first, *(a for a, _ in touched)])
        highest = max([last, *(b for _, b in touched)])
        self._ranges[begin:end] = [(lowest, highest)]
        return last - first + 1 - present


def _started_at(run: RunRecord) -> float:
    """Return the time at which the first worker process started; if unknown, the time at which it began to train."""
    training_started_at = run.starts[0].at
    ages = (
        entry.at - sum(_activity_seconds(entry.values).values()) for entry in run.of_kind("seconds")
    )
    return min((training_started_at, *ages))


def _worker_share(run: RunRecord, redone_steps: Sequence[StepRecord]) -> float | None:
    totals = total(worker_seconds(run))
    total_seconds = sum(totals.values())
    if not total_seconds:
        return None
    repeated_seconds = sum(step.seconds * step.world_size for step in redone_steps)
    step_seconds = sum(totals.get(name, 0.0) for name in STEP_ACTIVITIES)
    return min(max(step_seconds - repeated_seconds, 0.0) / total_seconds, 1.0)


def absent_seconds(run: RunRecord) -> float:
    """Return the seconds without any machine, according to the machines' events and the departures of workers."""
    timelines = node_timelines(run, run.entries[-1].at) if run.entries else ()
    boundaries = sorted(
        {
            time
            for timeline in timelines
            for piece in timeline.segments
            for time in (piece.start, piece.end)
        }
    )
    return sum(
        end - start
        for start, end in pairwise(boundaries)
        if _is_absent({_state(timeline, start) for timeline in timelines})
    )


def _state(timeline: NodeTimeline, time: float) -> NodeState:
    index = bisect_right(timeline.segments, time, key=lambda piece: piece.start) - 1
    return timeline.segments[index].state


def _is_absent(states: set[NodeState]) -> bool:
    return NodeState.GONE in states and states <= {NodeState.GONE, NodeState.WAITING}


# --- estimate for a design that restarts ---------------------------------------------------------


def history(run: RunRecord) -> tuple[MachineChange, ...]:
    """Return the changes of the group, in seconds since the first step began."""
    if not run.steps:
        return ()
    started_at = run.steps[0].at - run.steps[0].seconds
    return tuple(
        machine_change
        for change in group_changes(run)
        for machine_change in _machine_changes(change, started_at)
    )


def _machine_changes(change: GroupChange, started_at: float) -> Iterator[MachineChange]:
    start, end = change.at - started_at, change.resumed_at - started_at
    if change.lost_workers or change.recorded_loss:
        yield MachineChange(start, ChangeCause.LOSS, len(change.lost_workers))
    if change.departed_workers:
        yield MachineChange(start, ChangeCause.NOTICE, len(change.departed_workers))
    if change.joined_workers:
        yield MachineChange(
            end if change.none_stayed else start, ChangeCause.JOIN, len(change.joined_workers)
        )


def restart_estimate(run: RunRecord) -> RestartEstimate | None:
    """Return the estimate for a design that restarts; None if the run did so, or has no step."""
    run_goodput = goodput(run)
    start_values = run.newest_start.values if run.newest_start else {}
    if (
        run_goodput is None
        or start_values.get("mode") not in LIVE_MODES
        or not run_goodput.elapsed_seconds
    ):
        return None
    changes = history(run)
    started_at = run.steps[0].at - run.steps[0].seconds
    checkpoint_interval = run.starts[-1].measure("checkpoint_seconds") or UNKNOWN_CHECKPOINT_SECONDS
    # The history has the times at which machines joined, after their start-up.
    design = replace(model.restart_design(checkpoint_interval), start_up=model.NO_COST)
    outcome = model.replay(
        run.steps[0].world_size, changes, max(run.steps[-1].at - started_at, 0.0), design
    )
    live_lost_seconds = lost_seconds(run, run_goodput)
    further_seconds = max(outcome.lost_seconds - live_lost_seconds, 0.0)
    notice = next(
        (change.at_seconds for change in changes if change.cause is ChangeCause.NOTICE), None
    )
    return RestartEstimate(
        goodput=max(run_goodput.productive_seconds - further_seconds, 0.0)
        / run_goodput.elapsed_seconds,
        lost_seconds=outcome.lost_seconds,
        live_lost_seconds=live_lost_seconds,
        changes=len(changes),
        ended_at=None if notice is None else started_at + notice,
        assumptions=tuple(model.assumptions(design)),
    )


def lost_seconds(run: RunRecord, run_goodput: Goodput) -> float:
    """Return the cost of the changes in this run: time between steps, less absent time, plus repeated steps."""
    pauses = sum(max(first.at - last.at - first.seconds, 0.0) for last, first in run.pauses)
    return max(pauses - run_goodput.absent_seconds, 0.0) + run_goodput.redone_seconds
