"""The report of a training run: what was trained, how fast, what each eviction cost, where the time went.

`build` is a pure function of a `Run`. Its values, as JSON, are a stable interface that programs
read; every key is defined in docs/report.md, and a test holds the two together. It is computed
from the journals each time, never stored, so that a report cannot be older than what it reports
on.
"""

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from everstep.cli.run import ARRIVALS, LOSSES, Event, Run, Step
from everstep.cli.seconds import (
    Goodput,
    RestartEstimate,
    WorkerSeconds,
    goodput,
    restart_estimate,
    seconds,
)

VERSION = 1
"""Raised when the meaning of a key changes or a key goes; a new key does not raise it."""


@dataclass(frozen=True)
class WorldSize:
    """From this time on the group had this many workers."""

    at: float
    world_size: int


@dataclass(frozen=True)
class Recovery:
    """What one event cost the training; None is what is not known until training goes on."""

    kind: str
    node: str
    at: float
    seconds_to_next_step: float | None
    steps_lost: int | None
    joined_at: float | None = None
    seconds_to_join: float | None = None


@dataclass(frozen=True)
class Report:
    """What `everstep report` says; times in unix seconds, durations in seconds."""

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
    events: tuple[Recovery, ...]

    def to_json(self) -> dict[str, Any]:
        """The stable form, as documented in docs/report.md."""
        return asdict(self)


def build(run: Run) -> Report:
    """Work the report out of what is known so far; a run that has not begun gives an empty one."""
    head = run.newest_start.values if run.newest_start else {}
    return Report(
        version=VERSION,
        job=str(head.get("job") or run.result.get("job") or ""),
        model=str(head.get("model") or run.result.get("model") or ""),
        dataset=str(head.get("dataset") or run.result.get("dataset") or ""),
        finished=run.finished is not None or bool(run.result),
        started_at=run.starts[0].at if run.starts else None,
        duration_seconds=duration(run),
        steps=max((step.step for step in run.steps), default=0),
        total_steps=int(head.get("total_steps", 0)),
        world_sizes=world_sizes(run),
        images_per_second=median_throughput(run.steps),
        images_per_second_overall=overall_throughput(run),
        accuracy=accuracy(run),
        goodput=goodput(run),
        seconds=seconds(run),
        restart_estimate=restart_estimate(run),
        events=tuple(recovery(run, event) for event in run.training_events),
    )


def duration(run: Run) -> float:
    """Seconds from the first worker's start to the end, or to the last sign of life; 0 before."""
    if not run.starts:
        return 0.0
    end = run.finished.at if run.finished else run.lines[-1].at
    return max(end - run.starts[0].at, 0.0)


def accuracy(run: Run) -> float | None:
    """The result's accuracy on the test set, or the last evaluation's while there is no result."""
    if (final := run.result.get("accuracy")) is not None:
        return float(final)
    evaluations = [line.measure("accuracy") for line in run.of_kind("evaluation")]
    return evaluations[-1] if evaluations else None


def median_throughput(steps: tuple[Step, ...]) -> float | None:
    """Images per second of the median step: what it runs at when nothing disturbs it."""
    rates = [step.images / step.seconds for step in steps if step.seconds > 0]
    return median(rates) if rates else None


def overall_throughput(run: Run) -> float | None:
    """Images of steps that counted per second of the whole duration, every pause included."""
    seconds = duration(run)
    if not run.steps or seconds <= 0:
        return None
    counted = {step.step: step.images for step in run.steps}  # a repeated step counts once
    return sum(counted.values()) / seconds


def world_sizes(run: Run) -> tuple[WorldSize, ...]:
    """The group's size over time, one entry a change, as the finished steps show it."""
    changes: list[WorldSize] = []
    for step in run.steps:
        if not changes or changes[-1].world_size != step.world_size:
            changes.append(WorldSize(step.at, step.world_size))
    return tuple(changes)


def recovery(run: Run, event: Event) -> Recovery:
    """What one event cost: see docs/report.md for the definitions."""
    if event.kind in ARRIVALS:
        return _arrival(run, event)
    before, after = _around(run, event)
    return Recovery(
        kind=event.kind,
        node=event.node,
        at=event.at,
        seconds_to_next_step=None if after is None else after.at - event.at,
        steps_lost=_lost(before, after),
    )


def _around(run: Run, event: Event) -> tuple[tuple[Step, ...], Step | None]:
    """The steps finished before the group took the event in, and the first one after it did."""
    generation = _generation_at(run, event.at)
    renewed = next(
        (step for step in run.steps if step.at > event.at and step.generation > generation), None
    )
    if not _matters(run, event, renewed):
        renewed = next((step for step in run.steps if step.at > event.at), None)
    until = renewed.at if renewed else float("inf")
    return tuple(step for step in run.steps if step.at < until), renewed


def _generation_at(run: Run, at: float) -> int:
    """The generation of the last step finished by then; before any step, of the last group."""
    steps = [step.generation for step in run.steps if step.at <= at]
    groups = [line.number("generation") for line in run.of_kind("generation") if line.at <= at]
    return steps[-1] if steps else max(groups, default=-1)


def _matters(run: Run, event: Event, renewed: Step | None) -> bool:
    """Whether the group had to form anew because of this event."""
    if event.kind not in LOSSES or run.worker_on(event.node, event.at) is None:
        return False
    if event.kind in ("freeze", "cut"):  # may be over before anyone notices
        return renewed is not None and renewed.at < _next_event(run, event)
    return True


def _next_event(run: Run, event: Event) -> float:
    """When something else was done than ending this event; never, if nothing was."""
    undone = {"freeze": "thaw", "cut": "mend"}.get(event.kind)
    later = (
        other.at
        for other in run.training_events
        if other.at > event.at and not (other.node == event.node and other.kind == undone)
    )
    return next(later, float("inf"))


def _lost(before: tuple[Step, ...], after: Step | None) -> int | None:
    """How many steps had to be done again: the highest reached less the one resumed from."""
    if after is None:
        return None
    reached = max((step.step for step in before), default=0)
    return max(reached - (after.step - 1), 0)


def _arrival(run: Run, event: Event) -> Recovery:
    """The pause of those who were training while a machine's worker joined them."""
    joined = _join(run, event)
    pause = None if joined is None else _pause_after(run, joined)
    if pause is None:
        after = next((step for step in run.steps if step.at > event.at), None)
        waited = None if after is None or joined is not None else after.at - event.at
        return Recovery(event.kind, event.node, event.at, waited, None if waited is None else 0)
    last, first = pause
    return Recovery(
        kind=event.kind,
        node=event.node,
        at=event.at,
        seconds_to_next_step=first.at - last.at,
        steps_lost=_lost(tuple(step for step in run.steps if step.at < first.at), first),
        joined_at=first.at,
        seconds_to_join=first.at - event.at,
    )


def _join(run: Run, event: Event) -> float | None:
    """When a worker entered training on the node that came back, before it went again."""
    gone_again = (
        other.at
        for other in run.training_events
        if other.at > event.at and other.node == event.node and other.kind in LOSSES
    )
    until = next(gone_again, float("inf"))
    entries = (line.at for line in run.starts if line.values.get("node") == event.node)
    return next((at for at in entries if event.at < at < until), None)


def _pause_after(run: Run, joined: float) -> tuple[Step, Step] | None:
    """The change of generation that took the newcomer in: the first to end after it entered."""
    return next(((last, first) for last, first in run.pauses if first.at > joined), None)
