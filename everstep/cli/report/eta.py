"""Remaining time of a training run, from its speed so far."""

from everstep.cli.report.goodput import counted_steps
from everstep.cli.report.run_record import RunRecord

RECENT_STEPS = 20
"""Number of steps over which the speed is averaged."""


def remaining_seconds(run: RunRecord) -> float | None:
    """Return the expected seconds from the last step of a run to its end; None if unknown.

    The remaining steps take as long as the last ones did, and pauses and repeated steps take the same share of the
    time as they have until now.
    """
    if run.finished:
        return 0.0
    recent_steps = run.steps[-RECENT_STEPS:]
    busy_seconds, step_count = (
        sum(step.seconds for step in recent_steps),
        sum(step.count for step in recent_steps),
    )
    if run.total_steps <= 0 or busy_seconds <= 0:
        return None
    remaining_steps = max(run.total_steps - max(step.step for step in run.steps), 0)
    return remaining_steps * busy_seconds / step_count * _slowdown(run)


def _slowdown(run: RunRecord) -> float:
    """Return the time from the first step's start to the last step's end, relative to the counted steps; at least 1."""
    started_at = run.steps[0].at - run.steps[0].seconds
    productive = sum(step.seconds for step in counted_steps(run.steps))
    return max((run.steps[-1].at - started_at) / productive, 1.0) if productive > 0 else 1.0
