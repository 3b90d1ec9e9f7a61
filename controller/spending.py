"""The deadline and the budget of a job: `everstep.capacity.on_demand` decides, this module counts and observes.

Pure. Money is counted from the machines that the job's pods occupy, each at the price of its pool, from the time at
which a pod gets a node until it ends or is gone. The job's status has the amount, and the machines that are billed
since then. So a controller may stop at any moment, and the next one counts the time in between.

The policy needs to know how much work is left. A worker exports its completed and its planned steps; together with
the machine time in which that share grew, they give the machine time of the whole training. The count begins with
the first known share, because the start of the first workers says nothing about the rest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controller.objects import Node, Pod
from controller.spending_settings import SpendingSettings
from controller.spending_state import HOUR, Machine, Share, SpendingState
from everstep.capacity.on_demand import (
    POLICIES,
    Progress,
    Purchase,
    Terms,
    within_budget,
)
from everstep.catalog.names import CAPACITY_LABEL, GPU_POOL_LABEL, ON_DEMAND

PASS_SECONDS = 60.0
"""Interval of the regular passes: spending is written and the policy decides at least this often."""

START_SECONDS = 312.0
"""From the request of a machine until it trains, as `everstep plan` assumes."""

JOIN_SECONDS = 60.0
"""Time for which a spot worker has to run before it replaces an on-demand worker."""

MIN_SHARE = 0.005
"""Share of the training from which its machine time is estimated; before, a step more or less matters."""

NOTHING = Purchase(0, use_spot=True, reason="")


@dataclass(frozen=True, kw_only=True)
class ObservedSpending:
    """Observed state of a job with limits.

    Attributes:
        settings: limits and prices.
        created: time at which the job was created.
        wanted: workers that the job wants.
        min_workers: workers below which it does not train.
        grace_seconds: time in which a worker ends after its deletion.
        pods: pods of its workers whose node is not lost.
        nodes: nodes of these pods, by name.
        share: completed share of the training; None if no worker reported it.
        runs: False if the job is suspended by its owner or its training has ended.
        now: the current time.
    """

    settings: SpendingSettings
    created: datetime
    wanted: int
    min_workers: int
    grace_seconds: float
    pods: Sequence[Pod]
    nodes: Mapping[str, Node | None]
    share: float | None
    runs: bool
    now: datetime

    @property
    def spot(self) -> list[Pod]:
        """Running spot pods that stay."""
        return [
            pod
            for pod in self.pods
            if not (pod.on_demand or pod.terminating or pod.interrupted) and pod.phase == "Running"
        ]

    @property
    def joined(self) -> int:
        """Spot pods that have run for long enough to train."""
        return sum(self.joins_at(pod) <= self.now for pod in self.spot)

    def joins_at(self, pod: Pod) -> datetime:
        """Return the time from which a running pod counts as training."""
        return (pod.started or self.now) + timedelta(seconds=JOIN_SECONDS)

    @property
    def starting(self) -> int:
        """Spot pods that have a machine and do not train yet."""
        bound = sum(
            pod.phase == "Pending"
            and pod.node is not None
            and not (pod.on_demand or pod.terminating)
            for pod in self.pods
        )
        return bound + len(self.spot) - self.joined

    @property
    def on_demand(self) -> int:
        """On-demand pods that stay, including pods that wait for a machine."""
        return sum(pod.on_demand and not pod.terminating and not pod.ended for pod in self.pods)


@dataclass(frozen=True, kw_only=True)
class SpendingPlan:
    """The result of one pass.

    Attributes:
        state: the new state, for the status.
        purchase: workers to have on demand; None if that is left to the cluster autoscaler.
        wake_times: times at which something is due without an event.
    """

    state: SpendingState
    purchase: Purchase | None
    wake_times: tuple[datetime, ...] = ()


def plan_spending(observed: ObservedSpending, previous: SpendingState | None) -> SpendingPlan:
    """Count what was spent, and decide how many workers to have on demand."""
    spending_state = count(observed, previous)
    spending_state = replace(spending_state, deadline=observed.settings.due(observed.created))
    used_up = not within_budget(
        _terms(observed, spending_state), spending_state.usd, _reserve_usd(observed)
    )
    decided = replace(
        spending_state,
        used_up=used_up,
        fixed_usd_per_hour=0.0 if used_up else spending_state.fixed_usd_per_hour,
        starved_since=_starved_since(observed, spending_state),
    )
    purchase = _purchase(observed, decided)
    decided = replace(
        decided,
        on_demand=purchase.on_demand,
        use_spot=purchase.use_spot,
        reason=_reason(observed, decided, purchase),
    )
    state = previous if previous and not _is_due(previous, decided) else decided
    return SpendingPlan(
        state=state,
        purchase=purchase if observed.settings.on_demand else None,
        wake_times=tuple(_wake_times(observed, decided)),
    )


def count(observed: ObservedSpending, previous: SpendingState | None) -> SpendingState:
    """Return the state with everything counted until now, and the machines that are billed from now on."""
    now = observed.now
    before = previous or SpendingState(counted_at=now)
    billed = [*_billed_before(observed, before), *_billed_first(observed, previous)]
    fixed = before.fixed_usd_per_hour * max((now - before.counted_at) / HOUR, 0.0)
    by_capacity = {
        kind: sum(
            (seconds for machine, seconds in billed if machine.on_demand is kind), timedelta()
        )
        for kind in (False, True)
    }
    return replace(
        before,
        counted_at=max(now, before.counted_at),
        usd=before.usd
        + fixed
        + sum(machine.usd_per_hour * (time / HOUR) for machine, time in billed),
        spot_seconds=before.spot_seconds + by_capacity[False].total_seconds(),
        on_demand_seconds=before.on_demand_seconds + by_capacity[True].total_seconds(),
        machines=tuple(_machine(observed, pod) for pod in _occupying(observed)),
        fixed_usd_per_hour=observed.settings.fixed_usd_per_hour if observed.runs else 0.0,
        workers=sum(pod.phase == "Running" and not pod.terminating for pod in observed.pods),
        share=_with_share(observed, before),
    )


def _occupying(observed: ObservedSpending) -> list[Pod]:
    """Return the pods that occupy a machine."""
    return [pod for pod in observed.pods if pod.node is not None and not pod.ended]


def _billed_before(
    observed: ObservedSpending, before: SpendingState
) -> Iterator[tuple[Machine, timedelta]]:
    """Yield the machines that were billed already, each with its time since then."""
    pods = {pod.uid: pod for pod in observed.pods}
    for machine in before.machines:
        pod = pods.get(machine.pod)
        end = pod.finished if pod and pod.ended and pod.finished else observed.now
        yield machine, max(min(end, observed.now) - before.counted_at, timedelta())


def _billed_first(
    observed: ObservedSpending, previous: SpendingState | None
) -> Iterator[tuple[Machine, timedelta]]:
    """Yield the machines that are billed for the first time, each with its time since the last count.

    Some have ended already, if no controller ran meanwhile.
    """
    counted_pods = {machine.pod for machine in previous.machines} if previous else set()
    for pod in observed.pods:
        if pod.node is None or pod.uid in counted_pods:
            continue
        start = pod.bound or pod.started or pod.created
        start = max(start, previous.counted_at) if previous else start
        end = (pod.finished or start) if pod.ended else observed.now
        yield _machine(observed, pod), max(end - start, timedelta())


def _machine(observed: ObservedSpending, pod: Pod) -> Machine:
    node = observed.nodes.get(pod.node or "")
    labels = node.labels if node else {}
    return Machine(
        pod=pod.uid,
        pool=labels.get(GPU_POOL_LABEL, ""),
        on_demand=labels.get(CAPACITY_LABEL) == ON_DEMAND,
        usd_per_hour=observed.settings.usd_per_hour(labels),
    )


def _with_share(observed: ObservedSpending, before: SpendingState) -> Share | None:
    """Return the completed share of the training with the machine time in which it grew."""
    newest = before.share.now if observed.share is None and before.share else observed.share
    if newest is None:
        return None
    if before.share is None:
        return Share(first=newest, now=newest)
    passed = max((observed.now - before.counted_at).total_seconds(), 0.0)
    return replace(
        before.share,
        now=newest,
        machine_seconds=before.share.machine_seconds + before.workers * passed,
    )


def _terms(observed: ObservedSpending, state: SpendingState) -> Terms:
    """Return the known terms of the job; if its work is unknown, it counts as a job without a deadline."""
    work = _work(observed, state)
    due = state.deadline if work is not None else None
    return Terms(
        work=work or 1.0,
        machines=max(observed.wanted, 1),
        min_machines=observed.min_workers,
        start_seconds=START_SECONDS,
        pass_seconds=PASS_SECONDS,
        deadline_seconds=None if due is None else (due - observed.created).total_seconds(),
        budget_usd=observed.settings.budget_usd,
    )


def _work(observed: ObservedSpending, state: SpendingState) -> float | None:
    """Return the machine-seconds of the whole training; None as long as they are not known.

    A job whose workers export nothing until half of its time has passed is assumed to need the remaining time.
    """
    share = state.share
    if share and share.now - share.first >= MIN_SHARE and share.machine_seconds > 0:
        return share.machine_seconds / (share.now - share.first)
    if state.deadline is None:
        return None
    remaining_seconds = (state.deadline - observed.now).total_seconds()
    passed = (observed.now - observed.created).total_seconds()
    return (
        None
        if passed < remaining_seconds
        else max(remaining_seconds, 0.0) * max(observed.wanted, 1) + 1.0
    )


def _progress(observed: ObservedSpending, state: SpendingState) -> Progress:
    share, work = state.share, _work(observed, state)
    is_measured = share is not None and share.now - share.first >= MIN_SHARE
    starved = state.starved_since
    return Progress(
        seconds=(observed.now - observed.created).total_seconds(),
        work_done=share.now * work if share and work and is_measured else 0.0,
        spot=observed.joined,
        on_demand=observed.on_demand,
        none_for_seconds=(observed.now - starved).total_seconds() if starved else 0.0,
        starting=observed.starting,
    )


def _purchase(observed: ObservedSpending, state: SpendingState) -> Purchase:
    policy = observed.settings.on_demand
    if policy is None or state.used_up or not observed.runs:
        return NOTHING
    return POLICIES[policy](_terms(observed, state), _progress(observed, state))


def _starved_since(observed: ObservedSpending, state: SpendingState) -> datetime | None:
    if not observed.runs or len(observed.spot) >= observed.min_workers:
        return None
    return state.starved_since or observed.now


def _reserve_usd(observed: ObservedSpending) -> float:
    """Return the price of the whole group until the next pass and the end of its workers after it.

    The group is priced as it may become: a budget that is used up must stay so when the workers have left.
    """
    settings = observed.settings
    usd_per_hour = settings.fixed_usd_per_hour + observed.wanted * settings.highest_usd_per_hour
    return usd_per_hour * (timedelta(seconds=PASS_SECONDS + observed.grace_seconds) / HOUR)


def _reason(observed: ObservedSpending, state: SpendingState, purchase: Purchase) -> str:
    """Return the reason of a purchase, and since when a deadline is missed."""
    if state.used_up:
        return used_up_message(observed.settings)
    if observed.runs and state.deadline and state.deadline <= observed.now:
        return f"the deadline has passed; {purchase.reason}" if purchase.reason else ""
    return purchase.reason


def used_up_message(settings: SpendingSettings) -> str:
    """Return why a job is suspended, and what to do; without the amount, which grows until the workers have left."""
    return (
        f"the budget of {settings.budget_usd:.2f} USD is used up; raise job.budgetUsd, and training resumes from its "
        "checkpoint"
    )


def _is_due(previous: SpendingState, decided: SpendingState) -> bool:
    """Return True if the state has to be written: something changed, or a pass interval has gone by.

    A status that changed in every pass would cause the next pass.
    """
    passed = (decided.counted_at - previous.counted_at).total_seconds()
    return passed >= PASS_SECONDS or _decisions(previous) != _decisions(decided)


def _decisions(state: SpendingState) -> SpendingState:
    """Return the fields whose changes are written immediately: all but amounts, times and the reason."""
    since = state.counted_at if state.starved_since else None
    epoch = datetime.min  # noqa: DTZ901  (a constant, which is never compared with a time)
    return replace(
        state,
        counted_at=epoch,
        usd=0.0,
        spot_seconds=0.0,
        on_demand_seconds=0.0,
        reason="",
        share=None,
        starved_since=epoch if since else None,
    )


def _wake_times(observed: ObservedSpending, state: SpendingState) -> Iterator[datetime]:
    """Yield the times at which the budget is used up and at which a worker has joined."""
    if observed.settings.on_demand:
        yield from (observed.joins_at(pod) for pod in observed.spot)
    if state.deadline:
        yield state.deadline
    budget = observed.settings.budget_usd
    if budget is None or state.used_up or not state.usd_per_hour:
        return
    remaining_usd = budget - _reserve_usd(observed) - state.usd
    yield observed.now + max(remaining_usd, 0.0) / state.usd_per_hour * HOUR + timedelta(seconds=1)
