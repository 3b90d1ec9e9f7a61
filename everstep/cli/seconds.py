"""Where a run's time went, what of it was good for something, and what another design would have lost.

Pure functions of a `Run`; `report.build` puts them together, `everstep.cli.seconds_screen` draws them.

*Goodput* is what the field means by it (Google's runtime goodput, Meta's effective training time
ratio): productive time as a share of elapsed time. Productive is the time of steps that counted, each
step once, as the one that led measured it: what had to be done again is not, nor any pause, start-up,
checkpoint stall or evaluation. Elapsed is the wall clock from the first worker process's start to the
run's end, less the time in which no machine was there: what the market does not give, no design can
use. A second in which fewer machines worked counts as much as any other; `worker_share` weighs by them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from everstep import goodput as model
from everstep.cli.run import Run, Step
from everstep.cli.timeline import State, Strip, span, strips
from everstep.elastic.accounting import Name
from everstep.goodput import Cause, Change

STEP_NAMES = (Name.DATA, Name.COMPUTE, Name.EXCHANGE)
"""What a step is made of. If it is rolled back, the accounting has renamed it."""

LIVING = ("live", "exact")
UNKNOWN_CHECKPOINT_SECONDS = 60.0
"""Where the journal does not say how often checkpoints were due."""


@dataclass(frozen=True)
class WorkerSeconds:
    """What one worker's seconds went into, all its processes together, by `accounting.Name`."""

    worker: str
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Goodput:
    """How much of a run's time counted; see docs/report.md."""

    share: float
    worker_share: float | None
    elapsed_seconds: float
    productive_seconds: float
    redone_seconds: float
    absent_seconds: float


@dataclass(frozen=True)
class RestartEstimate:
    """What a design that restarts its workers would have lost on the same history. A model says so, no run."""

    goodput: float
    lost_seconds: float
    live_lost_seconds: float
    changes: int
    ended_at: float | None
    assumptions: tuple[str, ...]


def seconds(run: Run) -> tuple[WorkerSeconds, ...]:
    """Each worker's seconds, by name of the worker; none where the journals tell of none."""
    whole: dict[str, dict[str, float]] = {}
    newest: dict[str, dict[str, float]] = {}
    for line in run.lines:
        if line.kind == "start":  # a new process counts from 0 again
            _add(whole.setdefault(line.worker, {}), newest.pop(line.worker, {}))
        elif line.kind == "seconds":
            newest[line.worker] = _named(line.values)
    for worker, last in newest.items():
        _add(whole.setdefault(worker, {}), last)
    return tuple(WorkerSeconds(worker, spent) for worker, spent in sorted(whole.items()) if spent)


def _named(values: Mapping[str, object]) -> dict[str, float]:
    found = ((name.value, values.get(name.value)) for name in Name)
    return {
        name: float(value)
        for name, value in found
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }


def _add(into: dict[str, float], more: Mapping[str, float]) -> None:
    for name, value in more.items():
        into[name] = into.get(name, 0.0) + value


def total(workers: Sequence[WorkerSeconds]) -> dict[str, float]:
    """All workers' seconds together."""
    whole: dict[str, float] = {}
    for worker in workers:
        _add(whole, worker.seconds)
    return whole


def goodput(run: Run) -> Goodput | None:
    """How much of the run's time counted; None before its first step."""
    if not run.steps or not run.starts:
        return None
    _, end = span(run, run.lines[-1].at)
    absent = absent_seconds(run)
    elapsed = max(end - _began(run) - absent, 0.0)
    counted = counted_steps(run.steps)
    productive = sum(step.seconds for step in counted.values())
    redone = [step for step in run.steps if not step.again and counted[step.step] is not step]
    return Goodput(
        share=min(productive / elapsed, 1.0) if elapsed else 0.0,
        worker_share=_worker_share(run, redone),
        elapsed_seconds=elapsed,
        productive_seconds=productive,
        redone_seconds=sum(step.seconds for step in redone),
        absent_seconds=absent,
    )


def counted_steps(steps: Sequence[Step]) -> dict[int, Step]:
    """The steps that counted, by number: one that was done again with its last time."""
    counted: dict[int, Step] = {}
    for step in steps:
        if not (step.again and step.step in counted):
            counted[step.step] = step
    return counted


def _began(run: Run) -> float:
    """When the first worker process started, where the journals tell; else when it entered training."""
    entered = run.starts[0].at
    ages = (line.at - sum(_named(line.values).values()) for line in run.of_kind("seconds"))
    return min((entered, *ages))


def _worker_share(run: Run, redone: Sequence[Step]) -> float | None:
    spent = total(seconds(run))
    whole = sum(spent.values())
    if not whole:
        return None
    in_vain = sum(step.seconds * step.world_size for step in redone)
    worked = sum(spent.get(name, 0.0) for name in STEP_NAMES)
    return min(max(worked - in_vain, 0.0) / whole, 1.0)


def absent_seconds(run: Run) -> float:
    """How long no machine was there, as far as the machines' events tell."""
    lives = strips(run, run.lines[-1].at) if run.lines else ()
    cuts = sorted(
        {at for life in lives for piece in life.segments for at in (piece.start, piece.end)}
    )
    return sum(
        right - left
        for left, right in pairwise(cuts)
        if _nobody({_state(life, left) for life in lives})
    )


def _state(life: Strip, at: float) -> State:
    return next(piece.state for piece in reversed(life.segments) if piece.start <= at)


def _nobody(states: set[State]) -> bool:
    return State.GONE in states and states <= {State.GONE, State.WAITING}


# --- what restarting would have cost --------------------------------------------------------------


def history(run: Run) -> tuple[Change, ...]:
    """What happened to the group, from the groups themselves: seconds since the first step began.

    Who is gone from one group's workers to the next's has left where it wrote so, and was lost where
    not; whose process started in between has come. So a run on a cloud, where nobody writes down what
    was done to machines, has a history as well.
    """
    if not run.steps:
        return ()
    began = run.steps[0].at - run.steps[0].seconds
    groups: dict[int, set[str]] = {}
    for line in run.of_kind("generation"):
        groups.setdefault(line.number("generation"), set()).add(line.worker)
    said = {kind: run.of_kind(kind) for kind in ("start", "leave", "lost")}
    found: list[Change] = []
    for last, first in run.pauses:
        between = {
            kind: {line.worker for line in lines if last.at <= line.at <= first.at}
            for kind, lines in said.items()
        }
        before, after = (groups.get(step.generation, set()) for step in (last, first))
        found += _changes(last.at - began, first.at - began, before, after, between)
    return tuple(found)


def _changes(
    at: float,
    until: float,
    before: set[str],
    after: set[str],
    between: Mapping[str, set[str]],
) -> list[Change]:
    """What made one group into the next; `between` holds who wrote which kind of line meanwhile."""
    came = (after - before) | (after & between["start"])
    gone = (before - after) | (before & between["start"])
    left = gone & between["leave"]
    lost, found = gone - left, []
    if lost or between["lost"]:
        found.append(Change(at, Cause.LOSS, len(lost)))
    if left:
        found.append(Change(at, Cause.NOTICE, len(left)))
    if came:
        nobody_stayed = gone >= before
        found.append(Change(until if nobody_stayed else at, Cause.JOIN, len(came)))
    return found


def restart_estimate(run: Run) -> RestartEstimate | None:
    """What a design that restarts would have lost; None where the run did so itself, or has no step."""
    kept = goodput(run)
    head = run.newest_start.values if run.newest_start else {}
    if kept is None or head.get("mode") not in LIVING or not kept.elapsed_seconds:
        return None
    changes = history(run)
    began = run.steps[0].at - run.steps[0].seconds
    every = float(head.get("checkpoint_seconds") or UNKNOWN_CHECKPOINT_SECONDS)
    # When a machine joined is known from the run: its start-up is over by then.
    design = replace(model.restart(every), start_up=model.NOTHING)
    outcome = model.replay(
        run.steps[0].world_size, changes, max(run.steps[-1].at - began, 0.0), design
    )
    cost = lost_to_changes(run, kept)
    more = max(outcome.lost_seconds - cost, 0.0)
    notice = next((change.at for change in changes if change.cause is Cause.NOTICE), None)
    return RestartEstimate(
        goodput=max(kept.productive_seconds - more, 0.0) / kept.elapsed_seconds,
        lost_seconds=outcome.lost_seconds,
        live_lost_seconds=cost,
        changes=len(changes),
        ended_at=None if notice is None else began + notice,
        assumptions=tuple(model.assumptions(design)),
    )


def lost_to_changes(run: Run, kept: Goodput) -> float:
    """What the changes have cost this run: its pauses, less the steps in them, and steps done again."""
    pauses = sum(max(first.at - last.at - first.seconds, 0.0) for last, first in run.pauses)
    return max(pauses - kept.absent_seconds, 0.0) + kept.redone_seconds
