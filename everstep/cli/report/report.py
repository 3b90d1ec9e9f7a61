"""The report of a training run: progress, throughput, the cost of each eviction, the use of time.

`build` is a pure function of a `RunRecord`. Its JSON is a stable interface for programs; docs/report.md
defines every key, and a test compares the two. The report is computed from the journals each time and never
stored, so it cannot be out of date.
"""

from bisect import bisect_right
from dataclasses import asdict, dataclass
from itertools import accumulate, islice
from statistics import median
from typing import Any

from everstep.cli.report.goodput import (
    Goodput,
    RestartEstimate,
    WorkerSeconds,
    counted_steps,
    goodput,
    restart_estimate,
    worker_seconds,
)
from everstep.cli.report.moves import MoveCost, move_costs
from everstep.cli.report.run_record import (
    ARRIVALS,
    ENDS,
    LOSSES,
    MachineEvent,
    RunRecord,
    StepRecord,
    is_number,
)
from everstep.cli.report.stalls import LongWait, slow_nodes

VERSION = 1
"""Version of the JSON: increases if a key is removed or changes its meaning, not for a new key."""


@dataclass(frozen=True)
class WorldSize:
    """Size of the group from the Unix time `at` on."""

    at: float
    world_size: int


@dataclass(frozen=True)
class EventRecovery:
    """The cost of one event; None while training has not continued."""

    kind: str
    node: str
    at: float
    seconds_to_next_step: float | None
    steps_lost: int | None
    joined_at: float | None = None
    seconds_to_join: float | None = None


@dataclass(frozen=True)
class Report:
    """Everything that `everstep report` shows; times in Unix seconds, durations in seconds."""

    version: int
    job: str
    model: str
    dataset: str
    finished: bool
    started_at: float | None
    duration_seconds: float
    steps: int
    total_steps: int
    world_sizes: tuple[WorldSize, ...]
    images_per_second: float | None
    images_per_second_overall: float | None
    accuracy: float | None
    goodput: Goodput | None
    seconds: tuple[WorkerSeconds, ...]
    restart_estimate: RestartEstimate | None
    events: tuple[EventRecovery, ...]
    moves: tuple[MoveCost, ...] = ()
    slow_nodes: tuple[LongWait, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, as documented in docs/report.md."""
        return asdict(self)


def build(run: RunRecord) -> Report:
    """Return the report of a run so far; an empty one for a run that has not begun."""
    start_values = run.newest_start.values if run.newest_start else {}
    return Report(
        version=VERSION,
        job=str(start_values.get("job") or run.result.get("job") or ""),
        model=str(start_values.get("model") or run.result.get("model") or ""),
        dataset=str(start_values.get("dataset") or run.result.get("dataset") or ""),
        finished=run.finished is not None or bool(run.result),
        started_at=run.starts[0].at if run.starts else None,
        duration_seconds=duration(run),
        steps=max((step.step for step in run.steps), default=0),
        total_steps=run.total_steps,
        world_sizes=world_sizes(run),
        images_per_second=median_throughput(run.steps),
        images_per_second_overall=overall_throughput(run),
        accuracy=accuracy(run),
        goodput=goodput(run),
        seconds=worker_seconds(run),
        restart_estimate=restart_estimate(run),
        events=tuple(recovery(run, event) for event in run.training_events),
        moves=move_costs(run),
        slow_nodes=slow_nodes(run),
    )


def duration(run: RunRecord) -> float:
    """Return the seconds from the first worker's start to the end or the last entry; 0 before the first start."""
    if not run.starts:
        return 0.0
    end = run.finished.at if run.finished else run.entries[-1].at
    return max(end - run.starts[0].at, 0.0)


def accuracy(run: RunRecord) -> float | None:
    """Return the accuracy of the result on the test set, or of the last evaluation so far."""
    if is_number(final_accuracy := run.result.get("accuracy")):
        return float(final_accuracy)
    evaluations = [entry.measure("accuracy") for entry in run.of_kind("evaluation")]
    return evaluations[-1] if evaluations else None


def median_throughput(steps: tuple[StepRecord, ...]) -> float | None:
    """Return the images per second of the median step, which is the speed without disruptions."""
    rates = sorted((step.images / step.seconds, step.count) for step in steps if step.seconds > 0)
    if all(count == 1 for _, count in rates):
        return median(rate for rate, _ in rates) if rates else None
    middle = sum(count for _, count in rates) / 2
    cumulative_counts = accumulate(count for _, count in rates)
    return next(
        rate for (rate, _), so_far in zip(rates, cumulative_counts, strict=True) if so_far >= middle
    )


def overall_throughput(run: RunRecord) -> float | None:
    """Return the images of counted steps per second of the whole duration, including pauses."""
    seconds = duration(run)
    if not run.steps or seconds <= 0:
        return None
    return sum(step.images for step in counted_steps(run.steps)) / seconds


def world_sizes(run: RunRecord) -> tuple[WorldSize, ...]:
    """Return the group's size over time, one entry for each change, from the completed steps."""
    changes: list[WorldSize] = []
    for step in run.steps:
        if not changes or changes[-1].world_size != step.world_size:
            changes.append(WorldSize(step.at, step.world_size))
    return tuple(changes)


def recovery(run: RunRecord, event: MachineEvent) -> EventRecovery:
    """Return the cost of one event; docs/report.md has the definitions."""
    if event.kind in ARRIVALS:
        return _arrival(run, event)
    next_step = _resuming_step(run, event)
    return EventRecovery(
        kind=event.kind,
        node=event.node,
        at=event.at,
        seconds_to_next_step=None if next_step is None else next_step.at - event.at,
        steps_lost=None if next_step is None else _lost_steps(run, next_step),
    )


def _resuming_step(run: RunRecord, event: MachineEvent) -> StepRecord | None:
    """Return the first step after a loss with which the training continues; None if there is none yet."""
    new_group_step = _first_of_higher_generation(run, event.at)
    if _causes_new_group(run, event, new_group_step):
        return new_group_step
    return run.step_after(event.at)


def _first_of_higher_generation(run: RunRecord, time: float) -> StepRecord | None:
    """Return the first step after a time that has a higher generation than the group at that time."""
    if index := bisect_right(run.step_times, time):
        return run.next_generation_steps[index - 1]
    groups = [entry.number("generation") for entry in run.of_kind("generation") if entry.at <= time]
    newest = max(groups, default=-1)
    return next((step for step in run.steps if step.generation > newest), None)


def _causes_new_group(
    run: RunRecord, event: MachineEvent, new_group_step: StepRecord | None
) -> bool:
    """Return True if the group had to form again because of this event."""
    if event.kind not in LOSSES or run.worker_on(event.node, event.at) is None:
        return False
    if event.kind in ("freeze", "cut"):  # may end before it is detected
        return new_group_step is not None and new_group_step.at < _next_event(run, event)
    return True


def _next_event(run: RunRecord, event: MachineEvent) -> float:
    """Return the time of the next event that does not end this event; infinity if there is none."""
    ending_kinds = ENDS.get(event.kind, frozenset())
    index = bisect_right(run.training_events, event.at, key=lambda other_event: other_event.at)
    next_times = (
        other.at
        for other in islice(run.training_events, index, None)
        if not (other.node == event.node and other.kind in ending_kinds)
    )
    return next(next_times, float("inf"))


def _lost_steps(run: RunRecord, first: StepRecord) -> int:
    """Return the number of steps to repeat: from the step that training resumed with to the highest completed step."""
    return max(run.highest_step(first.at) - (first.step - 1), 0)


def _arrival(run: RunRecord, event: MachineEvent) -> EventRecovery:
    """Return the cost of an arrival: the pause of the training workers while the machine's worker joined."""
    started_at = _worker_start(run, event)
    pause = None if started_at is None else _pause_after(run, started_at)
    if pause is None:
        next_step = run.step_after(event.at)
        wait_seconds = (
            None if next_step is None or started_at is not None else next_step.at - event.at
        )
        return EventRecovery(
            event.kind, event.node, event.at, wait_seconds, None if wait_seconds is None else 0
        )
    last, first = pause
    return EventRecovery(
        kind=event.kind,
        node=event.node,
        at=event.at,
        seconds_to_next_step=first.at - last.at,
        steps_lost=_lost_steps(run, first),
        joined_at=first.at,
        seconds_to_join=first.at - event.at,
    )


def _worker_start(run: RunRecord, event: MachineEvent) -> float | None:
    """Return the time at which a worker started on an arrived node before its next loss; None if none did."""
    later_losses = (
        other.at
        for other in run.events_on(event.node)
        if other.at > event.at and other.kind in LOSSES
    )
    lost_at = next(later_losses, float("inf"))
    return next((time for time in run.starts_on(event.node) if event.at < time < lost_at), None)


def _pause_after(run: RunRecord, started_at: float) -> tuple[StepRecord, StepRecord] | None:
    """Return the change of generation that added the new worker: the first to end after its start."""
    index = bisect_right(run.pauses, started_at, key=lambda pause: pause[1].at)
    return run.pauses[index] if index < len(run.pauses) else None
