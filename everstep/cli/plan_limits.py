"""The deadline and the budget for the plan of a job."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from everstep.capacity import deadline as deadlines
from everstep.capacity import plan as planning
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import JobConfig


def limits_of(
    job: "JobConfig", deadline: str = "", budget: float | None = None
) -> planning.JobLimits:
    """Return the limits of the command line, or the stack's limits where it sets none.

    Args:
        job: the stack's job.
        deadline: duration on the command line, such as 24h; empty if there is none.
        budget: USD on the command line; None if there is none.

    Raises:
        EverstepError: a deadline is not a duration, has passed or is too far away to be planned.
    """
    limits = planning.JobLimits(_deadline_seconds(deadline), budget)
    if not deadline and job.deadline:
        seconds = _seconds_until(job.deadline)
        limits = replace(limits, deadline_seconds=seconds, deadline_name="job.deadline")
    if budget is None and job.budget_usd is not None:
        limits = replace(limits, budget_usd=job.budget_usd, budget_name="job.budgetUsd")
    return limits


def _deadline_seconds(text: str) -> float | None:
    """Return a deadline such as 24h in seconds; None if there is none.

    Raises:
        EverstepError: the text is not a positive number with a unit, or the duration is too long.
    """
    if not text:
        return None
    seconds = deadlines.duration_seconds(text)
    if seconds is None:
        days = deadlines.MAX_SECONDS / deadlines.UNIT_SECONDS["d"]
        raise EverstepError(
            f"--deadline {text!r} is not a duration of up to {days:g} days",
            "Use a positive number and a unit, m, h or d: --deadline 24h",
        )
    return seconds


def _seconds_until(deadline: str) -> float:
    """Return the seconds until the deadline of a stack, for a job that begins now.

    Raises:
        EverstepError: the deadline has passed, or is too far away to be planned.
    """
    remaining = deadlines.seconds_left(deadline, datetime.now(UTC)) or 0.0
    if not 0 < remaining <= deadlines.MAX_SECONDS:
        days = deadlines.MAX_SECONDS / deadlines.UNIT_SECONDS["d"]
        raise EverstepError(
            f"job.deadline {deadline} is not within the next {days:g} days",
            "Change it in the stack file, or plan with another deadline: --deadline 24h",
        )
    return remaining
