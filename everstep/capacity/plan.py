"""Plan of a job: the outcomes of replayed histories for each choice of zones and on-demand policy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from everstep.capacity.deadline import MAX_SECONDS
from everstep.capacity.generator import GAP_SECONDS, PUBLISHED, fit, generate
from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import JobModel
from everstep.capacity.on_demand import FallbackPolicy, OnDemand, policy_of
from everstep.capacity.placement import PlacementConfig
from everstep.capacity.simulator import Outcome, parameters_of, simulate
from everstep.catalog.units import HOUR_SECONDS
from everstep.errors import EverstepError

MAX_HORIZON_SECONDS = 2 * MAX_SECONDS


@dataclass(frozen=True)
class JobLimits:
    """Limits that a user sets; None for a limit that is not set.

    Attributes:
        deadline_seconds: time by which the job has to be complete.
        budget_usd: amount that the job must not exceed.
        deadline_name: option or key that sets the deadline, for messages.
        budget_name: option or key that sets the budget, for messages.
    """

    deadline_seconds: float | None = None
    budget_usd: float | None = None
    deadline_name: str = "--deadline"
    budget_name: str = "--budget"


@dataclass(frozen=True)
class Choice:
    """A choice that a user can make.

    Attributes:
        zones: number of zones, counted from the first zone of the history.
        on_demand: setting for on-demand machines.
        fallback: policy, if the setting is `fallback`.
        machine_type: the only machine type; empty for all types of the pools.
    """

    zones: int
    on_demand: OnDemand
    fallback: FallbackPolicy = FallbackPolicy.LATEST_START
    machine_type: str = ""


@dataclass(frozen=True)
class Spread:
    """A distribution over histories: its 10th, 50th and 90th percentile."""

    p10: float
    median: float
    p90: float


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """A row of the plan: the outcomes of one choice.

    Attributes:
        choice: the choice.
        seconds: duration; infinite for a history in which the job was not completed.
        usd: cost.
        goodput: share of the billed machine time spent on training that counted.
        moves: moves between zones.
        complete: share of the histories in which the job was completed before the end of the history.
        in_time: share of the histories in which it was completed by the deadline; None without a deadline.
        suspended: share of the histories in which the budget suspended it.
    """

    choice: Choice
    seconds: Spread
    usd: Spread
    goodput: Spread
    moves: Spread
    complete: float
    in_time: float | None
    suspended: float


def choices(
    zones: int,
    machine_types: Sequence[str] = (),
    *,
    has_deadline: bool = False,
    everything: bool = False,
) -> Iterator[Choice]:
    """Yield the choices; a group that is always on demand needs only one zone.

    Args:
        zones: number of zones.
        machine_types: machine types of the pools; a single type is not compared.
        has_deadline: whether the job has a deadline. Without one, the baselines buy no on-demand machine.
        everything: whether to yield all combinations; otherwise, baselines and machine types are combined only with
            the use of all zones.
    """
    baselines = [
        item for item in FallbackPolicy if item is not FallbackPolicy.LATEST_START and has_deadline
    ]
    yield from _of_type("", range(1, zones + 1), baselines if everything else ())
    if not everything:
        yield from (Choice(zones, OnDemand.FALLBACK, fallback) for fallback in baselines)
    for machine_type in compared(machine_types)[1:]:
        if everything:
            yield from _of_type(machine_type, range(1, zones + 1), baselines)
        else:
            yield Choice(zones, OnDemand.FALLBACK, machine_type=machine_type)


def compared(machine_types: Sequence[str]) -> tuple[str, ...]:
    """Return the machine types that have choices: the empty type for all, and each of several."""
    return ("", *machine_types) if len(machine_types) > 1 else ("",)


def _of_type(
    machine_type: str, zones: Iterable[int], baselines: Iterable[FallbackPolicy]
) -> Iterator[Choice]:
    """Yield the choices of zones, on-demand machines and policies for a machine type."""
    for count in zones:
        yield Choice(count, OnDemand.NEVER, machine_type=machine_type)
        for fallback in (FallbackPolicy.LATEST_START, *baselines):
            yield Choice(count, OnDemand.FALLBACK, fallback, machine_type)
    yield Choice(1, OnDemand.ALWAYS, machine_type=machine_type)


def check(jobs: Mapping[str, JobModel], limits: JobLimits) -> None:
    """Check that a policy could meet the limits with the best of several machine types.

    Args:
        jobs: the job on machines of each type; the type is empty for all types of the pools.
        limits: limits of the job.

    Raises:
        EverstepError: the deadline is too early, or the budget is below the cost of one hour.
    """
    _check_deadline(jobs, limits)
    _check_budget(jobs, limits)


def _check_deadline(jobs: Mapping[str, JobModel], limits: JobLimits) -> None:
    machine_type = min(jobs, key=lambda name: jobs[name].shortest_seconds)
    job = jobs[machine_type]
    deadline_seconds, name = limits.deadline_seconds, limits.deadline_name
    if deadline_seconds is None or deadline_seconds >= job.shortest_seconds:
        return
    earliest = ceil(job.shortest_seconds / HOUR_SECONDS * 10) / 10
    machines = f"{job.machines} machines{_of_this(machine_type)}"
    work = f"{job.work / HOUR_SECONDS:g} machine-hours on {machines}"
    raise EverstepError(
        f"{name} {_duration(deadline_seconds)} cannot be met: {work} take at least {earliest:g} h, even if all run "
        "from the beginning",
        f"Set {name} to {earliest:g}h or more, raise job.maxReplicas, or lower --work.",
    )


def _of_this(machine_type: str) -> str:
    return f" of type {machine_type}" if machine_type else ""


def _duration(seconds: float) -> str:
    """Return a duration as users write it, such as 5m or 1.5h."""
    return f"{seconds / 60:.0f}m" if seconds < HOUR_SECONDS else f"{seconds / HOUR_SECONDS:.4g}h"


def _check_budget(jobs: Mapping[str, JobModel], limits: JobLimits) -> None:
    hourly_costs = {name: job.hourly_cost(job.machines, 0) for name, job in jobs.items()}
    machine_type = min(hourly_costs, key=lambda name: hourly_costs[name])
    job, hourly_cost = jobs[machine_type], hourly_costs[machine_type]
    budget_usd, name = limits.budget_usd, limits.budget_name
    if budget_usd is None or budget_usd >= hourly_cost:  # a budget of nan is refused
        return
    raise EverstepError(
        f"{name} {budget_usd:g} is below the cost of one hour of the job: {job.machines} machines"
        f"{_of_this(machine_type)} and the rest of the stack cost {hourly_cost:.2f} USD an hour",
        f"Set {name} to {ceil(hourly_cost * 100) / 100:.2f} or more, or lower job.maxReplicas.",
    )


def generated_histories(
    count: int, seed: int, hours: float, machines: int, zones: Sequence[str]
) -> Iterator[CapacityHistory]:
    """Yield histories fitted to published traces.

    The zones of a stack differ from the zones of the traces, so each zone of the stack gets each trace zone in turn.
    """
    model = fit(PUBLISHED)
    positions = range(len(model.zones))
    for number in range(count):
        history = generate(model, seed=seed + number, hours=hours, machines=machines)
        rotated = history.with_zones([(zone + number) % len(positions) for zone in positions])
        selected = rotated.with_zones(range(min(len(zones), len(positions))))
        yield CapacityHistory(
            tuple(zones[: len(selected.zones)]), selected.gap_seconds, selected.machines
        )


def histories_of(
    trace: CapacityHistory, count: int, seconds: float, machines: int
) -> Iterator[CapacityHistory]:
    """Yield a trace from different start ticks, repeated until it lasts long enough.

    The trace is sampled at the interval of the published traces, because a tick of the simulator has to last about as
    long as the start of a machine.
    """
    limited = trace.sampled(GAP_SECONDS).limited(machines)
    ticks = len(limited.machines)
    rounds = ceil(seconds / (ticks * limited.gap_seconds))
    for number in range(count):
        shifted = limited.from_tick(number * ticks // count)
        yield CapacityHistory(shifted.zones, shifted.gap_seconds, shifted.machines * rounds)


def horizon_seconds(job: JobModel, limits: JobLimits) -> float:
    """Return the duration of the histories: a job that takes longer counts as incomplete.

    Raises:
        EverstepError: the job is too large to plan.
    """
    longest = 6 * job.shortest_seconds + 72 * HOUR_SECONDS
    if longest > MAX_HORIZON_SECONDS:
        days = job.shortest_seconds / HOUR_SECONDS / 24
        raise EverstepError(
            f"--work {job.work / HOUR_SECONDS:g} takes at least {days:.0f} days on {job.machines} machines, "
            "which is too long to plan",
            "Lower --work to a part of the job, or raise job.maxReplicas.",
        )
    return max(longest, 2 * (limits.deadline_seconds or 0.0))


def replay(
    history: CapacityHistory,
    choice: Choice,
    job: JobModel,
    limits: JobLimits,
    *,
    record: bool = False,
) -> Outcome:
    """Return the outcome of one choice on one history, with its ticks if `record` is set."""
    parameters = parameters_of(job, history.gap_seconds, limits.deadline_seconds, limits.budget_usd)
    zones = history.with_zones(range(min(choice.zones, len(history.zones))))
    placement = PlacementConfig(machines=job.machines, start_seconds=job.start_seconds)
    policy = policy_of(choice.on_demand, choice.fallback)
    return simulate(zones, job, parameters, placement, policy, record=record)


def summary(choice: Choice, outcomes: Sequence[Outcome], limits: JobLimits) -> PlanRow:
    """Return the row of a choice."""
    in_time, deadline_seconds = None, limits.deadline_seconds
    if deadline_seconds is not None:
        in_time = _share(
            outcome.complete and outcome.seconds <= deadline_seconds for outcome in outcomes
        )
    return PlanRow(
        choice=choice,
        seconds=spread(outcome.seconds if outcome.complete else inf for outcome in outcomes),
        usd=spread(outcome.usd for outcome in outcomes),
        goodput=spread(outcome.goodput for outcome in outcomes),
        moves=spread(outcome.moves for outcome in outcomes),
        complete=_share(outcome.complete for outcome in outcomes),
        in_time=in_time,
        suspended=_share(outcome.suspended for outcome in outcomes),
    )


def _share(values: Iterable[bool]) -> float:
    flags = list(values)
    return sum(flags) / len(flags)


def spread(values: Iterable[float]) -> Spread:
    """Return the percentiles of at least one value.

    Each percentile is the value of one history, because infinity cannot be averaged.
    """
    ordered = sorted(values)
    last = len(ordered) - 1
    return Spread(*(ordered[round(share * last)] for share in (0.1, 0.5, 0.9)))
