"""Checks of a job's deadline and budget: whether any policy could meet them, as computed by `everstep plan`."""

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

from everstep.capacity import plan as planning
from everstep.capacity.job import JobModel
from everstep.catalog.units import HOUR_SECONDS
from everstep.cli import plan_inputs, plan_limits
from everstep.cli.account.checks import AccountCheck, fault, success
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import JobConfig, StackConfig

DEADLINE, BUDGET = "job.deadline", "job.budgetUsd"


def limit_checks(config: "StackConfig", stack: str) -> Iterator[AccountCheck]:
    """Yield a check for each limit of the stack's job. None is fatal: the job's work is assumed, not known.

    Args:
        config: the configuration of the stack.
        stack: name of the stack.
    """
    if config.job.deadline:
        own_work = f"everstep plan --stack {stack} --work HOURS"
        yield _check(
            config,
            stack,
            DEADLINE,
            {"budget_usd": None},
            f" Or check it for the job's own work: {own_work}",
        )
    if config.job.budget_usd is not None:
        yield _check(config, stack, BUDGET, {"deadline": None})


def _check(
    config: "StackConfig",
    stack: str,
    field: str,
    other_limit: dict[str, None],
    further_fix: str = "",
) -> AccountCheck:
    """Return the check of one limit of a job; the other limit is ignored."""
    name = field.removeprefix("job.")
    try:
        model = plan_inputs.job_model(config, stack, None)
        limits = plan_limits.limits_of(config.job.model_copy(update=other_limit))
        planning.check({"": model}, limits)
    except EverstepError as error:
        return fault(name, error.problem, field, error.fix + further_fix, fatal=False)
    return success(name, _observed(config.job, model, field), field)


def _observed(job: "JobConfig", model: JobModel, field: str) -> str:
    """Return the observed value of a limit that can be met: the limit, and the estimate that it was compared with."""
    if field == BUDGET:
        hourly_cost = model.hourly_cost(model.machines, 0)
        return f"{job.budget_usd:g}; {model.machines} machines and the rest cost {hourly_cost:.2f} USD an hour"
    earliest = ceil(model.shortest_seconds / HOUR_SECONDS * 10) / 10
    work = f"{model.work / HOUR_SECONDS:g} machine-hours on {model.machines} machines"
    return f"{job.deadline}; {work} take at least {earliest:g} h"
