"""The deadline and the budget of a job: `everstep.capacity.on_demand` decides, this module counts and observes.

The functions are pure. Spending is computed from the machines that the job's pods occupy, each at the price of its
pool, from the time at which a pod gets a node until it ends or is gone. The job's status contains the amount, and the
machines that are billed from then on. A controller may therefore stop at any moment, and the next controller counts the
time in between.

The policy needs to know how much work remains. A worker exports its completed and its planned steps. Together with
the machine time in which the completed share grew, they determine the machine time of the whole training. The count
begins with the first share that was read, because the start of the first workers is not representative.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controller.objects import Node, Pod
from controller.spending_settings import SpendingSettings
from controller.spending_state import (
    HOUR,
    BilledMachine,
    CompletedShare,
    ObservedShare,
    SpendingState,
)
from everstep.capacity.lifetimes import START_SECONDS
from everstep.capacity.on_demand import (
    POLICIES,
    JobParameters,
    JobProgress,
    Purchase,
    within_budget,
)
from everstep.catalog.names import CAPACITY_LABEL, GPU_POOL_LABEL, ON_DEMAND

PASS_SECONDS = 60.0
"""Interval of the regular passes, which the operator queues even without an event: spending is written and the policy
decides at least this often."""

JOIN_SECONDS = 60.0
"""Time for which a spot worker has to run before it replaces an on-demand worker."""

MIN_SHARE = 0.005
"""Minimum share of the training from which its machine time is estimated; below it, a single step weighs too much."""

MAX_WAKE_HOURS = 24.0

NO_PURCHASE = Purchase(0, use_spot=True, reason="")


@dataclass(frozen=True, kw_only=True)
class ObservedSpending:
    """Observed state of a job with limits.

    Attributes:
        settings: limits and prices.
        created: time at which the job was created.
        desired_workers: number of workers that the job should have.
        min_workers: minimum number of workers that train.
        grace_seconds: time in which a worker ends after its deletion.
        pods: pods of its workers whose node is not lost.
        nodes: nodes of these pods, by name.
        share: completed share of the training when it was last read; None if no worker exported it.
        runs: False if the job is suspended by its owner or its training has ended.
        now: the current time.
    """

    settings: SpendingSettings
    created: datetime
    desired_workers: int
    min_workers: int
    grace_seconds: float
    pods: Sequence[Pod]
    nodes: Mapping[str, Node | None]
    share: ObservedShare | None
    runs: bool
    now: datetime

    @property
    def spot_pods(self) -> list[Pod]:
        """Running spot pods that have neither a deletion nor an interruption notice."""
        return [
            pod
            for pod in self.pods
            if not (pod.on_demand or pod.terminating or pod.interrupted) and pod.phase == "Running"
        ]

    @property
    def training_spot(self) -> int:
        """Number of spot pods that have run for long enough to train."""
        return sum(self.joins_at(pod) <= self.now for pod in self.spot_pods)

    @property
    def training_workers(self) -> int:
        """Number of workers whose machine time counts as training.

        Workers that start beside a complete group train only when they replace others.
        """
        running = sum(pod.phase == "Running" and not pod.terminating for pod in self.pods)
        return min(running, self.desired_workers)

    def joins_at(self, pod: Pod) -> datetime:
        """Return the time from which a running pod counts as training."""
        return (pod.started or self.now) + timedelta(seconds=JOIN_SECONDS)

    @property
    def starting_spot(self) -> int:
        """Number of spot pods that have a machine and do not train yet."""
        bound = sum(
            pod.phase == "Pending"
            and pod.node is not None
            and not (pod.on_demand or pod.terminating)
            for pod in self.pods
        )
        return bound + len(self.spot_pods) - self.training_spot

    @property
    def on_demand(self) -> int:
        """Number of on-demand pods that stay, including pods that wait for a machine."""
        return sum(pod.on_demand and not pod.terminating and not pod.ended for pod in self.pods)


@dataclass(frozen=True, kw_only=True)
class SpendingPlan:
    """The result of one pass.

    Attributes:
        state: the new state, for the status.
        purchase: workers to run on demand; None if the cluster autoscaler decides.
        wake_times: times at which something is due without an event.
    """

    state: SpendingState
    purchase: Purchase | None
    wake_times: tuple[datetime, ...] = ()


def plan_spending(observed: ObservedSpending, previous: SpendingState | None) -> SpendingPlan:
    """Count the spending, and decide how many workers to run on demand."""
    spending_state = count(observed, previous)
    spending_state = replace(
        spending_state, deadline=observed.settings.deadline_of(observed.created)
    )
    used_up = not within_budget(
        _parameters(observed, spending_state), spending_state.usd, _reserve_usd(observed)
    )
    new_state = replace(
        spending_state,
        used_up=used_up,
        fixed_usd_per_hour=0.0 if used_up else spending_state.fixed_usd_per_hour,
        starved_since=_starved_since(observed, spending_state),
    )
    purchase = _purchase(observed, new_state)
    new_state = replace(
        new_state,
        on_demand=purchase.on_demand,
        use_spot=purchase.use_spot,
        reason=_reason(observed, new_state, purchase),
    )
    state = previous if previous and not _is_due(previous, new_state) else new_state
    return SpendingPlan(
        state=state,
        purchase=purchase if observed.settings.on_demand else None,
        wake_times=tuple(_wake_times(observed, new_state)),
    )


def count(observed: ObservedSpending, previous: SpendingState | None) -> SpendingState:
    """Return the state with everything counted until now, and the machines that are billed from now on."""
    now = observed.now
    last_state = previous or SpendingState(counted_at=now)
    billed_machines = [*_billed_before(observed, last_state), *_newly_billed(observed, previous)]
    fixed_usd = last_state.fixed_usd_per_hour * max((now - last_state.counted_at) / HOUR, 0.0)
    by_capacity = {
        kind: sum(
            (seconds for machine, seconds in billed_machines if machine.on_demand is kind),
            timedelta(),
        )
        for kind in (False, True)
    }
    return replace(
        last_state,
        counted_at=max(now, last_state.counted_at),
        usd=last_state.usd
        + fixed_usd
        + sum(machine.usd_per_hour * (time / HOUR) for machine, time in billed_machines),
        spot_seconds=last_state.spot_seconds + by_capacity[False].total_seconds(),
        on_demand_seconds=last_state.on_demand_seconds + by_capacity[True].total_seconds(),
        machines=tuple(_machine(observed, pod) for pod in _pods_with_machines(observed)),
        fixed_usd_per_hour=observed.settings.fixed_usd_per_hour if observed.runs else 0.0,
        workers=observed.training_workers,
        completed_share=_with_share(observed, last_state),
    )


def _pods_with_machines(observed: ObservedSpending) -> list[Pod]:
    """Return the pods that occupy a machine."""
    return [pod for pod in observed.pods if pod.occupies_machine]


def _billed_before(
    observed: ObservedSpending, last_state: SpendingState
) -> Iterator[tuple[BilledMachine, timedelta]]:
    """Yield the machines of the last count, each with its billed time since then."""
    pods = {pod.uid: pod for pod in observed.pods}
    for machine in last_state.machines:
        pod = pods.get(machine.pod)
        end = pod.finished if pod and not pod.occupies_machine else None
        end = end or observed.now
        yield machine, max(min(end, observed.now) - last_state.counted_at, timedelta())


def _newly_billed(
    observed: ObservedSpending, previous: SpendingState | None
) -> Iterator[tuple[BilledMachine, timedelta]]:
    """Yield the machines that are billed for the first time, each with its billed time since the last count.

    If no controller ran in between, some of their pods have already ended.
    """
    counted_pods = {machine.pod for machine in previous.machines} if previous else set()
    for pod in observed.pods:
        if pod.node is None or pod.uid in counted_pods:
            continue
        start = pod.bound_since or pod.started or pod.created
        start = max(start, previous.counted_at) if previous else start
        end = observed.now if pod.occupies_machine else pod.finished or start
        yield _machine(observed, pod), max(end - start, timedelta())


def _machine(observed: ObservedSpending, pod: Pod) -> BilledMachine:
    node = observed.nodes.get(pod.node or "")
    labels = node.labels if node else {}
    return BilledMachine(
        pod=pod.uid,
        pool=labels.get(GPU_POOL_LABEL, ""),
        on_demand=labels.get(CAPACITY_LABEL) == ON_DEMAND,
        usd_per_hour=observed.settings.usd_per_hour(labels),
    )


def _with_share(observed: ObservedSpending, last_state: SpendingState) -> CompletedShare | None:
    """Return the completed share of the training with the machine time in which it grew.

    Machine time after the newest read is pending until the next share is read. If it were counted before the steps that
    were completed in it, the training would seem slower, and machines would be bought for the difference.
    """
    share, read, since = last_state.completed_share, observed.share, last_state.counted_at
    if read and (share is None or read.read_at > since):
        since = max(read.read_at, since)
        worker_seconds = last_state.workers * (since - last_state.counted_at).total_seconds()
        share = _with_read(share, read, worker_seconds)
    if share is None:
        return None
    elapsed = max((observed.now - since).total_seconds(), 0.0)
    return replace(share, pending_seconds=share.pending_seconds + last_state.workers * elapsed)


def _with_read(
    share: CompletedShare | None, read: ObservedShare, worker_seconds: float
) -> CompletedShare:
    """Return the share at the time of a read, with the machine time since the read before it."""
    if share is None:
        return CompletedShare(first_share=read.value, newest_share=read.value)
    return replace(
        share,
        newest_share=read.value,
        machine_seconds=share.machine_seconds + share.pending_seconds + worker_seconds,
        pending_seconds=0.0,
    )


def _parameters(observed: ObservedSpending, state: SpendingState) -> JobParameters:
    """Return the parameters of the job; a job whose work is unknown counts as a job without a deadline."""
    work = _work(observed, state)
    due = state.deadline if work is not None else None
    return JobParameters(
        work=work or 1.0,
        machines=max(observed.desired_workers, 1),
        min_machines=observed.min_workers,
        start_seconds=START_SECONDS,
        pass_seconds=PASS_SECONDS,
        deadline_seconds=None if due is None else (due - observed.created).total_seconds(),
        budget_usd=observed.settings.budget_usd,
        max_on_demand=observed.settings.max_on_demand,
    )


def _work(observed: ObservedSpending, state: SpendingState) -> float | None:
    """Return the machine-seconds of the whole training; None until they can be estimated.

    A job whose workers export nothing until half of its time has passed is assumed to need the remaining time.
    """
    share = state.completed_share
    if share and share.newest_share - share.first_share >= MIN_SHARE and share.machine_seconds > 0:
        return share.machine_seconds / (share.newest_share - share.first_share)
    if state.deadline is None:
        return None
    remaining_seconds = (state.deadline - observed.now).total_seconds()
    elapsed_seconds = (observed.now - observed.created).total_seconds()
    return (
        None
        if elapsed_seconds < remaining_seconds
        else max(remaining_seconds, 0.0) * max(observed.desired_workers, 1) + 1.0
    )


def _progress(observed: ObservedSpending, state: SpendingState) -> JobProgress:
    share, work = state.completed_share, _work(observed, state)
    is_measured = share is not None and share.newest_share - share.first_share >= MIN_SHARE
    starved = state.starved_since
    return JobProgress(
        seconds=(observed.now - observed.created).total_seconds(),
        work_done=share.newest_share * work if share and work and is_measured else 0.0,
        spot=observed.training_spot,
        on_demand=observed.on_demand,
        below_min_seconds=(observed.now - starved).total_seconds() if starved else 0.0,
        starting=observed.starting_spot,
    )


def _purchase(observed: ObservedSpending, state: SpendingState) -> Purchase:
    policy = observed.settings.on_demand
    if policy is None or state.used_up or not observed.runs:
        return NO_PURCHASE
    return POLICIES[policy](_parameters(observed, state), _progress(observed, state))


def _starved_since(observed: ObservedSpending, state: SpendingState) -> datetime | None:
    if not observed.runs or len(observed.spot_pods) >= observed.min_workers:
        return None
    return state.starved_since or observed.now


def _reserve_usd(observed: ObservedSpending) -> float:
    """Return the maximum cost of the group until the next pass, and until its workers have ended after that pass.

    Without this reserve, the spending could exceed the budget before the workers have left.
    """
    settings = observed.settings
    usd_per_hour = (
        settings.fixed_usd_per_hour + observed.desired_workers * settings.highest_usd_per_hour
    )
    return usd_per_hour * (timedelta(seconds=PASS_SECONDS + observed.grace_seconds) / HOUR)


def _reason(observed: ObservedSpending, state: SpendingState, purchase: Purchase) -> str:
    """Return the reason for a purchase, with a note if the deadline has passed."""
    if state.used_up:
        return used_up_message(observed.settings)
    if observed.runs and state.deadline and state.deadline <= observed.now:
        return f"the deadline has passed; {purchase.reason}" if purchase.reason else ""
    return purchase.reason


def used_up_message(settings: SpendingSettings) -> str:
    """Return the reason for a suspension and its fix; without the amount, which grows until the workers have left."""
    return (
        f"the budget of {settings.budget_usd:.2f} USD is used up; raise job.budgetUsd, and training resumes from its "
        "checkpoint"
    )


def _is_due(previous: SpendingState, new_state: SpendingState) -> bool:
    """Return True if the state has to be written: a decision changed, or a pass interval has passed.

    A status that changed in every pass would cause the next pass.
    """
    elapsed = (new_state.counted_at - previous.counted_at).total_seconds()
    return elapsed >= PASS_SECONDS or _decisions(previous) != _decisions(new_state)


def _decisions(state: SpendingState) -> SpendingState:
    """Return the state without amounts, times and the reason, whose changes are not written immediately."""
    epoch = datetime.min  # noqa: DTZ901  (a constant, which is never compared with a time)
    return replace(
        state,
        counted_at=epoch,
        usd=0.0,
        spot_seconds=0.0,
        on_demand_seconds=0.0,
        reason="",
        completed_share=None,
        starved_since=epoch if state.starved_since else None,
    )


def _wake_times(observed: ObservedSpending, state: SpendingState) -> Iterator[datetime]:
    """Yield the times at which a worker has joined, the deadline passes and the budget is used up."""
    if observed.settings.on_demand:
        yield from (observed.joins_at(pod) for pod in observed.spot_pods)
    if state.deadline:
        yield state.deadline
    budget = observed.settings.budget_usd
    if budget is None or state.used_up or not state.usd_per_hour:
        return
    remaining_usd = max(budget - _reserve_usd(observed) - state.usd, 0.0)
    # A very large budget would overflow Python's timedelta; every pass computes this time again.
    remaining = min(remaining_usd / state.usd_per_hour, MAX_WAKE_HOURS) * HOUR
    yield observed.now + remaining + timedelta(seconds=1)
