"""Replay of a capacity history for a job, tick by tick, under the policies for placement and on-demand machines.

The policies observe what a controller observes: their own machines, and another zone's response to a request
that has been open since the previous tick. Lifetimes are estimated from the group's own machines. Only the simulator
knows the history.

A new machine is billed from its request and trains after its start. If the group leaves a zone that still has
machines, or replaces its spot machines by on-demand machines, the old ones train until the new ones do, and are billed
until the autoscaler removes them. Machines are lost
without notice; if all are lost, so is the work since the last checkpoint. A request in another zone that is granted
but not used is billed for the minimum time. The tick in which the job is completed lasts, and is billed, until then.

A tick has to last about as long as the start of a machine, or longer: to the policies, a machine that started in
the previous tick is training.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import MIN_BILLED_TIME, JobModel
from everstep.capacity.lifetimes import LifetimeRecord, weighted_seconds
from everstep.capacity.on_demand import JobParameters, JobProgress, Policy, Purchase, within_budget
from everstep.capacity.placement import (
    Observation,
    PlacementConfig,
    PlacementDecision,
    PlacementPhase,
    PolicyState,
    ZoneObservation,
    place,
)
from everstep.catalog.units import HOUR_SECONDS


@dataclass(frozen=True)
class TickRecord:
    """One tick of a replay, for a picture.

    Attributes:
        zone: position of the group's zone.
        spot: spot machines of the group.
        on_demand: on-demand machines of the group.
        reason: reason for the zone.
    """

    zone: int
    spot: int
    on_demand: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one replay.

    Attributes:
        seconds: duration of the job, or of the history if the job did not complete.
        complete: whether the work was completed.
        suspended: whether the budget suspended the job.
        usd: total cost.
        work_done: machine-seconds of work that count.
        spot_seconds: billed machine-seconds on spot.
        on_demand_seconds: billed machine-seconds on demand.
        moves: moves between zones.
        ticks: records of the ticks; empty unless they were requested.
    """

    seconds: float
    complete: bool
    suspended: bool
    usd: float
    work_done: float
    spot_seconds: float
    on_demand_seconds: float
    moves: int
    ticks: tuple[TickRecord, ...] = ()

    @property
    def goodput(self) -> float:
        """Share of the billed machine time spent on training that counted."""
        billed = self.spot_seconds + self.on_demand_seconds
        return self.work_done / billed if billed else 0.0


def simulate(
    history: CapacityHistory,
    job: JobModel,
    parameters: JobParameters,
    placement: PlacementConfig,
    policy: Policy,
    *,
    record: bool = False,
) -> Outcome:
    """Replay a history from its beginning until the job is complete or suspended, or the history ends."""
    run = _Replay(history, job, parameters, placement, policy, record=record)
    for available in history.machines:
        if not run.tick(available):
            break
    return run.outcome()


def parameters_of(
    job: JobModel,
    pass_seconds: float,
    deadline_seconds: float | None = None,
    budget_usd: float | None = None,
) -> JobParameters:
    """Return the parameters of a job."""
    return JobParameters(
        work=job.work,
        machines=job.machines,
        min_machines=job.min_machines,
        start_seconds=job.start_seconds,
        pass_seconds=pass_seconds,
        goodput=job.steady_goodput,
        deadline_seconds=deadline_seconds,
        budget_usd=budget_usd,
        max_on_demand=job.max_on_demand,
    )


@dataclass(frozen=True)
class _IdleMachines:
    """Machines of a zone that the group has left.

    Attributes:
        count: number of machines.
        seconds: time after which the autoscaler removes them.
    """

    count: int
    seconds: float


def _later(
    idle: Mapping[int, _IdleMachines], available: tuple[int, ...], gap_seconds: float
) -> dict[int, _IdleMachines]:
    """Return the idle machines of each zone that are left after a tick."""
    left = {
        zone: _IdleMachines(min(machines.count, available[zone]), machines.seconds - gap_seconds)
        for zone, machines in idle.items()
    }
    return {
        zone: machines for zone, machines in left.items() if machines.count and machines.seconds > 0
    }


@dataclass(frozen=True)
class _Charge:
    """A part of the cost of a tick: machine-seconds and their price."""

    usd: float
    spot_seconds: float = 0.0
    on_demand_seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class _Step:
    """What the group has in one tick.

    Attributes:
        available: spot machines by zone.
        before: placement of the previous tick; None in the first.
        decision: placement of this tick.
        spot: spot machines of the group.
        on_demand: on-demand machines of the group.
        remaining: spot machines of the previous tick that are left in their zone.
        uses_spot: whether the group keeps spot machines.
    """

    available: tuple[int, ...]
    before: PlacementDecision | None
    decision: PlacementDecision
    spot: int
    on_demand: int
    remaining: int
    uses_spot: bool

    @property
    def zone(self) -> int:
        """Position of the group's zone."""
        return self.decision.zone

    @property
    def left_zone(self) -> int:
        """Position of the group's zone in the previous tick."""
        return self.before.zone if self.before is not None else self.zone

    @property
    def moved(self) -> bool:
        """True if the group has moved to another zone."""
        return self.left_zone != self.zone

    @property
    def replaces_spot(self) -> bool:
        """True if spot machines train until others replace them: after a move, or if all are to run on demand."""
        return self.moved or (self.remaining > 0 and not self.uses_spot)


@dataclass(frozen=True, kw_only=True)
class _Training:
    """The training of one tick.

    Attributes:
        seconds: time until the job is complete; otherwise the whole tick.
        work_done: machine-seconds of work that count at the end of this time.
        remaining_start_seconds: machine-seconds until all starting machines train.
    """

    seconds: float
    work_done: float
    remaining_start_seconds: float


@dataclass
class _Replay:
    """The state of one replay. Work is counted in machine-seconds."""

    history: CapacityHistory
    job: JobModel
    parameters: JobParameters
    placement: PlacementConfig
    policy: Policy
    record: bool
    now: float = 0.0
    work_done: float = 0.0
    usd: float = 0.0
    spot: int = 0
    on_demand: int = 0
    remaining_start_seconds: float = 0.0  # machine-seconds until all starting machines train
    spot_seconds: float = 0.0
    on_demand_seconds: float = 0.0
    moves: int = 0
    below_min_since: float = 0.0
    suspended: bool = False
    decision: PlacementDecision | None = None
    use_spot: bool = True
    ticks: list[TickRecord] = field(default_factory=list)
    lifetimes: list[LifetimeRecord] = field(default_factory=list)  # by zone
    idle: dict[int, _IdleMachines] = field(default_factory=dict)  # by zone

    def tick(self, available: tuple[int, ...]) -> bool:
        """Advance by one tick; return True if the job continues."""
        gap = self.history.gap_seconds
        self._observe_losses(available)
        step, purchase = self._decide(available)
        idle = self._idle_machines(step)
        next_usd = sum(charge.usd for charge in self._charges(step, idle, gap))
        if not within_budget(self.parameters, self.usd, next_usd):
            self.suspended = True
            return False
        training = self._train(step)
        for charge in self._charges(step, idle, training.seconds):
            self._pay(charge)
        self.work_done = training.work_done
        self.remaining_start_seconds = training.remaining_start_seconds
        self.idle = _later(idle, available, gap)
        self.moves += step.moved
        self.spot, self.on_demand, self.decision = step.spot, step.on_demand, step.decision
        self.use_spot = purchase.use_spot
        self.now += training.seconds
        if self.record:
            reason = step.decision.reason
            self.ticks.append(TickRecord(step.zone, step.spot, step.on_demand, reason))
        return self.work_done < self.job.work

    def outcome(self) -> Outcome:
        """Return the result so far."""
        return Outcome(
            seconds=self.now,
            complete=self.work_done >= self.job.work,
            suspended=self.suspended,
            usd=self.usd,
            work_done=min(self.work_done, self.job.work),
            spot_seconds=self.spot_seconds,
            on_demand_seconds=self.on_demand_seconds,
            moves=self.moves,
            ticks=tuple(self.ticks),
        )

    def _decide(self, available: tuple[int, ...]) -> tuple[_Step, Purchase]:
        """Return the machines of this tick, and the decision about on-demand machines."""
        before, decision = self.decision, self._place(available)
        offered = min(available[decision.zone], self.job.machines)
        moved = before is not None and decision.zone != before.zone
        purchase = self._purchase(offered, decision.zone, moved=moved)
        left_zone = before.zone if before is not None else decision.zone
        step = _Step(
            available=available,
            before=before,
            decision=decision,
            spot=offered if purchase.use_spot else 0,
            on_demand=purchase.on_demand,
            remaining=min(available[left_zone], self.spot),
            uses_spot=purchase.use_spot,
        )
        return step, purchase

    def _idle_machines(self, step: _Step) -> dict[int, _IdleMachines]:
        """Return the idle machines of each zone in this tick; a group on spot uses the machines of its own zone."""
        used_zone = step.zone if step.uses_spot else None
        idle = {zone: machines for zone, machines in self.idle.items() if zone != used_zone}
        if step.replaces_spot:
            idle[step.left_zone] = _IdleMachines(step.remaining, self.job.idle.seconds)
        return idle

    def _charges(
        self, step: _Step, idle: Mapping[int, _IdleMachines], seconds: float
    ) -> Iterator[_Charge]:
        """Yield the charges for a tick, or for its beginning."""
        yield self._group_charge(step.spot, step.on_demand, seconds, step.zone)
        yield from self._unused_charges(step)
        if step.replaces_spot:
            # After a move, the on-demand machines of the old zone are replaced as well.
            on_demand = self.on_demand if step.moved else 0
            yield self._overlap_charge(step.remaining, on_demand, step.left_zone)
        yield from self._idle_charges(idle, step.available, seconds)

    def _observe_losses(self, available: tuple[int, ...]) -> None:
        """Count the machine time of the previous tick and the machines that were lost at its end."""
        if self.decision is None:
            self.lifetimes = [LifetimeRecord() for _ in available]
            return
        gap, zone = self.history.gap_seconds, self.decision.zone
        self.lifetimes = [record.decayed(gap) for record in self.lifetimes]
        self.lifetimes[zone] = self.lifetimes[zone].plus(
            self.spot * weighted_seconds(gap), max(self.spot - available[zone], 0)
        )

    def _place(self, available: tuple[int, ...]) -> PlacementDecision:
        before, desired = self.decision, self.placement.machines
        policy_state = before.policy_state if before else PolicyState(0)
        searched = before.search if before else tuple(range(1, len(available)))
        running = min(available[policy_state.zone], desired)
        if before and running >= desired and before.state is PlacementPhase.SETTLED:
            return before  # a complete group stays, whatever else is observed
        # A group that is to run on demand requests no spot machines.
        if before and not self.use_spot:
            policy_state = replace(policy_state, short_since=None)
            reason = "all workers are to run on demand"
            return PlacementDecision(
                PlacementPhase.SETTLED, policy_state.zone, (), reason, policy_state
            )
        zones = tuple(
            ZoneObservation(
                running=running if zone == policy_state.zone else 0,
                offered=min(count, desired) if zone in searched else None,
                price=self.job.prices.usd_per_hour(zone, desired) / desired,
                lifetime_seconds=self.lifetimes[zone].expected_seconds,
            )
            for zone, count in enumerate(available)
        )
        return place(self.placement, Observation(self.now, zones), policy_state)

    def _purchase(self, offered: int, zone: int, *, moved: bool) -> Purchase:
        if offered >= self.parameters.min_machines:
            self.below_min_since = self.now + self.history.gap_seconds
        # After a move all machines start at the same time, on-demand machines as well.
        training = offered if moved else min(self.spot, offered)
        progress = JobProgress(
            seconds=self.now,
            work_done=self.work_done,
            spot=training,
            on_demand=self.on_demand,
            below_min_seconds=max(0.0, self.now - self.below_min_since),
            starting=offered - training,
        )
        purchase = self.policy(self.parameters, progress)
        if self.parameters.max_on_demand is None or not purchase.use_spot:
            return purchase
        # The limit includes the zone's on-demand pools, whose machines are among those offered.
        used = min(offered, self.job.prices.guaranteed_in(zone).machines)
        available = max(0, self.parameters.max_on_demand - used)
        return replace(purchase, on_demand=min(purchase.on_demand, available))

    def _pay(self, charge: _Charge) -> None:
        self.usd += charge.usd
        self.spot_seconds += charge.spot_seconds
        self.on_demand_seconds += charge.on_demand_seconds

    def _group_charge(self, spot: int, on_demand: int, seconds: float, zone: int) -> _Charge:
        usd = self.job.hourly_cost(spot, on_demand, zone) * seconds / HOUR_SECONDS
        return _Charge(usd, spot * seconds, on_demand * seconds)

    def _unused_charges(self, step: _Step) -> Iterator[_Charge]:
        """Yield the charges for machines that another zone granted and the group does not use."""
        for zone in step.before.search if step.before else ():
            if zone != step.zone:
                unused = min(step.available[zone], self.job.machines)
                yield self._spot_charge(unused, MIN_BILLED_TIME.seconds, zone)

    def _spot_charge(self, machines: int, seconds: float, zone: int) -> _Charge:
        """Return the charge for machines in addition to the group's."""
        usd = self.job.prices.usd_per_hour(zone, machines) * seconds / HOUR_SECONDS
        return _Charge(usd, machines * seconds)

    def _overlap_charge(self, remaining: int, on_demand: int, zone: int) -> _Charge:
        """Return the charge for the old machines while the new ones start."""
        charge = self._group_charge(remaining, on_demand, self.job.start_seconds, zone)
        fixed_usd = self.job.prices.fixed * self.job.start_seconds / HOUR_SECONDS  # billed once
        return replace(charge, usd=charge.usd - fixed_usd)

    def _idle_charges(
        self, idle: Mapping[int, _IdleMachines], available: tuple[int, ...], seconds: float
    ) -> Iterator[_Charge]:
        """Yield the charges for the machines of the zones that the group has left, until they are removed or lost."""
        for zone, machines in idle.items():
            count = min(machines.count, available[zone])
            yield self._spot_charge(count, min(seconds, machines.seconds), zone)

    def _train(self, step: _Step) -> _Training:
        gap, job, work_done = self.history.gap_seconds, self.job, self.work_done
        continuing = min(self.spot, step.spot) + min(self.on_demand, step.on_demand)
        continuing = 0 if step.moved else continuing
        machines = step.spot + step.on_demand
        new_machines = machines - continuing
        replaced, survivors = 0, continuing
        if step.moved:  # the old zone's machines train while the new ones start
            replaced = survivors = step.remaining + self.on_demand
        elif step.replaces_spot:  # the spot machines train while the on-demand machines start
            replaced = min(step.remaining, new_machines)
            survivors += step.remaining
        # Old machines that still start do not train yet.
        overlap = max(0.0, replaced * job.start_seconds - self.remaining_start_seconds)
        if self.spot + self.on_demand and not survivors:
            work_done -= min(
                work_done, job.design.checkpoint_seconds * (self.spot + self.on_demand)
            )
        start_seconds = min(
            self.remaining_start_seconds + new_machines * job.start_seconds,
            machines * job.start_seconds,
        )
        starting = min(start_seconds, machines * gap)
        # On-demand machines that bridge the start of spot machines add nothing to a complete group.
        work = min(machines * gap - starting, job.machines * gap) * job.steady_goodput
        work -= self._pauses(step.spot, continuing, new_machines)
        if machines >= job.min_machines:
            work_done += max(0.0, work) + overlap * job.steady_goodput
        return _Training(
            seconds=self._seconds_used(work_done, machines),
            work_done=work_done,
            remaining_start_seconds=start_seconds - starting,
        )

    def _seconds_used(self, work_done: float, machines: int) -> float:
        """Return the part of a tick until the job is complete; all machines train at the end of that tick."""
        gap, surplus = self.history.gap_seconds, work_done - self.job.work
        if surplus <= 0:
            return gap
        work_per_second = min(machines, self.job.machines) * self.job.steady_goodput
        return max(0.0, gap - surplus / work_per_second)

    def _pauses(self, spot: int, continuing: int, new_machines: int) -> float:
        """Return the machine-seconds that the remaining machines pause for losses and joins."""
        design = self.job.design
        loss_seconds = (
            design.loss.seconds + design.repeated.seconds
            if spot < self.spot and continuing
            else 0.0
        )
        join_seconds = (
            (design.join if continuing else design.begin).seconds if new_machines else 0.0
        )
        return loss_seconds * continuing + join_seconds * (continuing or new_machines)
