"""The number of on-demand machines to buy, as pure functions of the observation and the parameters of the job.

Five policies with one signature. `uniform_progress` and `greedy` are the policies of "Can't Be Late: Optimizing Spot
Instance Savings under Deadlines" (Wu et al., NSDI 2024), adapted to a group that trains with any number of
machines: where the paper switches all machines to on-demand, these buy the missing ones.

`latest_start` is Everstep's. While the group can still finish in time with all machines, it buys none: a machine
bought now costs as much as one bought later, and spot machines that arrive in the meantime make it unnecessary. From
that moment it replaces every missing machine. Unlike the greedy policy it continues to use spot machines,
because a group that grows and shrinks without restarts can do so with a small margin of time. When the margin is down
to one start and one pass, it uses only on-demand machines.

A stack whose pools allow fewer on-demand machines than the group has can rely only on these: the policies then
estimate the margin with this number, never buy more, and continue to use spot machines beside them.

The simulator and the controller call the same functions, so that the controller does what `everstep plan` shows. The
controller imports this module. Its image has only a part of Everstep, so this module imports only `lifetimes`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from everstep.capacity.lifetimes import START_SECONDS


@dataclass(frozen=True, kw_only=True)
class JobParameters:
    """Size, work and limits of a job.

    Attributes:
        work: machine-seconds that complete it.
        machines: desired number of machines.
        min_machines: minimum number of machines with which it trains.
        start_seconds: time from the request of a machine until it trains.
        pass_seconds: time between two decisions.
        goodput: share of its time that a machine spends on training while the group does not change.
        deadline_seconds: time by which the job has to be complete; None without a deadline.
        budget_usd: amount that must not be exceeded; None without a budget.
        max_on_demand: maximum number of on-demand machines that the stack's pools allow; None without a limit.
    """

    work: float
    machines: int
    min_machines: int = 1
    start_seconds: float = START_SECONDS
    pass_seconds: float = 300.0
    goodput: float = 1.0
    deadline_seconds: float | None = None
    budget_usd: float | None = None
    max_on_demand: int | None = None

    @property
    def purchasable(self) -> int:
        """Maximum number of on-demand machines of the group."""
        return (
            self.machines if self.max_on_demand is None else min(self.machines, self.max_on_demand)
        )


@dataclass(frozen=True)
class JobProgress:
    """Observed progress of a job.

    Attributes:
        seconds: time since the job began.
        work_done: machine-seconds of work that count.
        spot: spot machines that train.
        on_demand: on-demand machines that the group has.
        below_min_seconds: time during which there have been fewer spot machines than `min_machines`.
        starting: spot machines that run but do not train yet.
    """

    seconds: float
    work_done: float
    spot: int
    on_demand: int
    below_min_seconds: float = 0.0
    starting: int = 0


@dataclass(frozen=True)
class Purchase:
    """The decision of one pass.

    Attributes:
        on_demand: number of on-demand machines to have from now on.
        use_spot: whether to keep spot machines as well.
        reason: reason for the decision, for the job's status.
    """

    on_demand: int
    use_spot: bool
    reason: str


Policy = Callable[[JobParameters, JobProgress], Purchase]


class OnDemand(StrEnum):
    """The setting of a job: when it may buy on-demand machines."""

    NEVER = "never"
    FALLBACK = "fallback"
    ALWAYS = "always"


SPOT_ONLY = Purchase(0, use_spot=True, reason="spot machines only")
NONE_ALLOWED = Purchase(0, use_spot=True, reason="the pools allow no on-demand machine")
LOSSES_IN_RESERVE = 2
LOSSES_PER_SECOND = 0.5 / 3600
"""Losses of all spot machines that `latest_start` reserves time for: two, and one more per two hours of remaining work.

The rate is twice the rate in published traces, which have 14 to 98 losses of all machines in 271 to 428 hours: at most
0.23 an hour.
"""

FALLBACK_AFTER_SECONDS = 900.0
"""Time with too few spot machines for the smallest group, after which a job without a deadline buys on demand."""


def never(parameters: JobParameters, progress: JobProgress) -> Purchase:
    """Buy no on-demand machine."""
    del parameters, progress
    return SPOT_ONLY


def always(parameters: JobParameters, progress: JobProgress) -> Purchase:
    """Buy all machines on demand, or as many as the stack's pools allow."""
    del progress
    return Purchase(parameters.purchasable, use_spot=False, reason="all machines are on demand")


def margin_seconds(parameters: JobParameters, progress: JobProgress) -> float:
    """Return the seconds to spare if all on-demand machines do the remaining work; infinite without a deadline."""
    if parameters.deadline_seconds is None:
        return inf
    return parameters.deadline_seconds - progress.seconds - _work_seconds(parameters, progress)


def _work_seconds(parameters: JobParameters, progress: JobProgress) -> float:
    """Return the time that the remaining work takes with all on-demand machines; infinite if there are none."""
    if not parameters.purchasable:
        return inf
    return (parameters.work - progress.work_done) / parameters.purchasable / parameters.goodput


def missing_machines(parameters: JobParameters, progress: JobProgress) -> int:
    """Return the number of on-demand machines that complete the group, or as many as the stack's pools allow.

    Machines that were bought are kept until spot machines that replace them train.
    """
    not_covered_by_spot = max(0, parameters.machines - progress.spot)
    missing = max(
        not_covered_by_spot - progress.starting, min(progress.on_demand, not_covered_by_spot)
    )
    return min(missing, parameters.purchasable)


def _on_demand_only(parameters: JobParameters, progress: JobProgress, reason: str) -> Purchase:
    """Return a purchase of on-demand machines only, beside spot machines if they are too few for the whole group."""
    if parameters.purchasable == parameters.machines:
        return Purchase(parameters.machines, use_spot=False, reason=reason)
    reason += f", beside spot machines: the pools allow {parameters.purchasable}"
    return Purchase(missing_machines(parameters, progress), use_spot=True, reason=reason)


def latest_start(parameters: JobParameters, progress: JobProgress) -> Purchase:
    """Buy the missing machines as soon as all on-demand machines together would only just finish in time."""
    if not parameters.purchasable:
        return NONE_ALLOWED
    if parameters.deadline_seconds is None:
        return _minimum(parameters, progress)
    margin = margin_seconds(parameters, progress)
    safety = parameters.start_seconds + parameters.pass_seconds
    reserve = safety + _expected_losses(parameters, progress) * parameters.start_seconds
    if margin <= safety:
        reason = f"{margin:.0f} s of margin are left: on-demand machines only"
        return _on_demand_only(parameters, progress, reason)
    if margin <= reserve or (progress.on_demand and margin <= reserve + parameters.pass_seconds):
        reason = f"{margin:.0f} s of margin are left: missing machines are bought on demand"
        return Purchase(missing_machines(parameters, progress), use_spot=True, reason=reason)
    reason = f"{margin:.0f} s of margin are left: spot machines only"
    return Purchase(0, use_spot=True, reason=reason)


def _expected_losses(parameters: JobParameters, progress: JobProgress) -> float:
    return LOSSES_IN_RESERVE + LOSSES_PER_SECOND * _work_seconds(parameters, progress)


def _minimum(parameters: JobParameters, progress: JobProgress) -> Purchase:
    """Return the purchase of a job without a deadline, which keeps the smallest group training."""
    missing = parameters.min_machines - progress.spot
    may_buy = progress.below_min_seconds >= FALLBACK_AFTER_SECONDS or progress.on_demand > 0
    if missing > 0 and may_buy:
        reason = (
            f"{progress.spot} of at least {parameters.min_machines} spot machines train: "
            "the missing ones are bought on demand"
        )
        return Purchase(min(missing, parameters.purchasable), use_spot=True, reason=reason)
    return SPOT_ONLY


def greedy(parameters: JobParameters, progress: JobProgress) -> Purchase:
    """Use spot machines until the last moment, then only on-demand machines (baseline)."""
    if not parameters.purchasable:
        return NONE_ALLOWED
    margin = margin_seconds(parameters, progress)
    last_moment = 2 * parameters.start_seconds + parameters.pass_seconds
    if margin <= last_moment:
        return _on_demand_only(parameters, progress, "the last moment to finish in time")
    return SPOT_ONLY


def uniform_progress(parameters: JobParameters, progress: JobProgress) -> Purchase:
    """Keep up with a uniform rate of progress, and use all spot machines that there are (baseline)."""
    if parameters.deadline_seconds is None:
        return SPOT_ONLY
    final = greedy(parameters, progress)
    if final.on_demand:
        return final
    # Hysteresis: a group with on-demand machines keeps them until it has the progress expected two starts later.
    ahead = 2 * parameters.start_seconds if progress.on_demand else 0.0
    expected = parameters.work * (progress.seconds + ahead) / parameters.deadline_seconds
    if progress.work_done >= expected:
        return Purchase(0, use_spot=True, reason="progress is at or above the uniform rate")
    missing = missing_machines(parameters, progress)
    return Purchase(missing, use_spot=True, reason="progress is below the uniform rate")


POLICIES: dict[OnDemand, Policy] = {
    OnDemand.NEVER: never,
    OnDemand.FALLBACK: latest_start,
    OnDemand.ALWAYS: always,
}


class FallbackPolicy(StrEnum):
    """Policy of a job with `fallback`: Everstep's, or a baseline for comparison in a plan."""

    LATEST_START = "latest start"
    UNIFORM_PROGRESS = "uniform progress"
    GREEDY = "greedy"


FALLBACKS: dict[FallbackPolicy, Policy] = {
    FallbackPolicy.LATEST_START: latest_start,
    FallbackPolicy.UNIFORM_PROGRESS: uniform_progress,
    FallbackPolicy.GREEDY: greedy,
}


def policy_of(setting: OnDemand, fallback: FallbackPolicy = FallbackPolicy.LATEST_START) -> Policy:
    """Return the policy of a setting."""
    return FALLBACKS[fallback] if setting is OnDemand.FALLBACK else POLICIES[setting]


def within_budget(parameters: JobParameters, spent_usd: float, next_usd: float) -> bool:
    """Return True if the budget covers the next pass; otherwise the job is suspended with a checkpoint."""
    return parameters.budget_usd is None or spent_usd + next_usd <= parameters.budget_usd
