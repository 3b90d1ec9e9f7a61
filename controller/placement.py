"""The zone of a job's workers: `everstep.capacity.placement` decides, this module observes and executes.

The functions are pure. The policy decides on numbers of machines, which this module counts from the job's pods and
placeholders (see `placeholders`). The state for later passes is in the job's status, so that a controller may stop at
any moment.

A move never leaves the job without a group. Workers of the new zone start while the old zone's workers train.
Once they have joined the group, the old workers are deleted together: they leave after the same step, and the
new workers have the state. If the old zone is empty, the new workers resume from the checkpoint. A move is abandoned if
more workers train in the old zone than in the new one after `move_seconds`; the group then returns to the old zone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from controller.lifetimes import ObservedMachines, count, to_store
from controller.objects import Placeholder, Pod
from controller.placement_settings import PlacementSettings
from controller.placement_state import MAX_MOVES, GroupMove, InsufficientOffer, PlacementState
from controller.timestamps import format_time
from everstep.capacity.placement import (
    Observation,
    PlacementConfig,
    PlacementDecision,
    PlacementPhase,
    PolicyState,
    ZoneObservation,
    place,
    required_offer,
)

HELP = (
    "to get machines, add a zone or instance types to cluster.gpuPools, allow on-demand machines "
    "there (fallbackNodes), raise the quota, or lower job.minReplicas"
)
JOIN_POLL_SECONDS = 1.0
"""Time until workers that have not joined are scraped again; Kubernetes has no event for a join."""


@dataclass(frozen=True, kw_only=True)
class ObservedPlacement:
    """Observed state of a job with zones.

    Attributes:
        settings: zones and times.
        desired_workers: number of workers that the job should have.
        min_workers: minimum number of workers that train.
        max_workers: maximum number of workers of the group.
        pods: pods of its workers whose node is not lost.
        placeholders: its placeholders.
        now: the current time.
        starting_since: time since which the job waits for its first machines; None if it does not wait
            for them.
        joined: uids of the pods that have joined the group.
        machines: its spot machines, whose lifetimes are observed.
        uses_spot: False if all its workers have to run on demand.
    """

    settings: PlacementSettings
    desired_workers: int
    min_workers: int
    max_workers: int
    pods: Sequence[Pod]
    placeholders: Sequence[Placeholder]
    now: datetime
    starting_since: datetime | None
    machines: ObservedMachines
    joined: frozenset[str] = frozenset()
    uses_spot: bool = True

    @property
    def is_starting(self) -> bool:
        """True while the first machines of the job may still be starting."""
        since = self.starting_since
        return since is not None and self.now < self.time_after(since, self.settings.start_seconds)

    def workers(self, zone: str) -> list[Pod]:
        """Return the pods of a zone."""
        return [pod for pod in self.pods if pod.zone == zone]

    def training_pods(self, zone: str) -> list[Pod]:
        """Return the running spot pods of a zone that have neither a deletion nor an interruption notice.

        On-demand workers do not show whether a zone has spot machines.
        """
        return [pod for pod in self.running_pods(zone) if not (pod.interrupted or pod.on_demand)]

    def running_pods(self, zone: str) -> list[Pod]:
        """Return the running pods of a zone that are not being deleted."""
        return [pod for pod in self.workers(zone) if pod.phase == "Running" and not pod.terminating]

    def usable_machines(self, machines: int) -> int:
        """Return the given number of machines, or 0 if they are too few to train."""
        return machines if machines >= self.min_workers else 0

    def time_after(self, moment: datetime, seconds: float) -> datetime:
        """Return a later time."""
        return moment + timedelta(seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class PlacementPlan:
    """The result of one pass.

    Attributes:
        state: the new state, for the status.
        placeholders: desired number of placeholders in each zone.
        leaving_pods: pods to delete because the group is in another zone.
        wake_times: times at which something is due without an event.
    """

    state: PlacementState
    placeholders: Mapping[str, int] = field(default_factory=dict)
    leaving_pods: tuple[Pod, ...] = ()
    wake_times: tuple[datetime, ...] = ()


def plan_placement(observed: ObservedPlacement, previous: PlacementState | None) -> PlacementPlan:
    """Decide in which zone the group runs, what to request elsewhere and which workers leave."""
    state = _advance_move(observed, previous or _initial_state(observed))
    lifetimes = count(observed.machines, state.lifetimes)
    zones = tuple(dict.fromkeys((*observed.settings.zones, state.zone)))
    offers = {zone: _offer(observed, zone) for zone in zones if zone != state.zone}
    observations = {
        zone: replace(
            _observe(observed, state, zone, offers),
            price=observed.settings.usd_per_hour.get(zone),
            max_price=observed.settings.max_usd_per_hour.get(zone),
            lifetime_seconds=lifetimes.record(zone).expected_seconds,
        )
        for zone in zones
    }
    decision = _decide(observed, state, observations)
    new_state = _with_decision(observed, state, zones, offers, decision)
    search_zones = [zones[position] for position in decision.search]
    requests = {
        zone: observed.desired_workers
        for zone in search_zones
        if not _waits_for_retry(observed, new_state, observations, zone)
    }
    new_state = _with_unjoined(observed, new_state)
    new_state = replace(
        new_state,
        reason=_reason(observed, new_state, requests, decision),
        lifetimes=to_store(observed.machines, state.lifetimes, lifetimes),
    )
    return PlacementPlan(
        state=new_state,
        placeholders=requests,
        leaving_pods=tuple(_leaving_pods(observed, new_state)),
        wake_times=tuple(_wake_times(observed, new_state)),
    )


def _initial_state(observed: ObservedPlacement) -> PlacementState:
    """Return the initial state of a job: in the zone of its workers, else in the preferred zone.

    A zone above its price ceiling is preferred only if all are: the cloud starts no machine there.
    """
    settings = observed.settings
    zones = [pod.zone for pod in observed.pods if pod.zone in settings.zones]
    preferred = next(filter(settings.admits, settings.zones), settings.zones[0])
    zone = max(zones, key=zones.count, default=preferred)
    return PlacementState(zone=zone, state=PlacementPhase.SETTLED, since=observed.now)


def _decide(
    observed: ObservedPlacement,
    state: PlacementState,
    observations: Mapping[str, ZoneObservation],
) -> PlacementDecision:
    """Return the decision of the policy.

    A group that is to run on demand stays: placeholders request spot machines, which it would not use.
    """
    policy_state = _policy_state(state, tuple(observations))
    if not observed.uses_spot and state.move is None:
        policy_state = replace(policy_state, short_since=None)
        reason = "all workers are to run on demand"
        return PlacementDecision(
            PlacementPhase.SETTLED, policy_state.zone, (), reason, policy_state
        )
    return place(
        _config(observed),
        Observation(
            seconds=observed.now.timestamp(),
            zones=tuple(observations.values()),
            moving=state.move is not None,
        ),
        policy_state,
    )


def _config(observed: ObservedPlacement) -> PlacementConfig:
    settings = observed.settings
    return PlacementConfig(
        machines=observed.desired_workers,
        short_seconds=settings.short_seconds,
        move_interval_seconds=settings.move_interval_seconds,
    )


def _policy_state(state: PlacementState, zones: Sequence[str]) -> PolicyState:
    return PolicyState(
        zone=zones.index(state.zone),
        short_since=state.short_since.timestamp() if state.short_since else None,
        moved_at=state.moved_at.timestamp() if state.moved_at else None,
    )


def _observe(
    observed: ObservedPlacement, state: PlacementState, zone: str, offers: Mapping[str, int | None]
) -> ZoneObservation:
    if zone != state.zone:
        return ZoneObservation(offered=offers[zone], name=zone)
    return ZoneObservation(
        running=observed.usable_machines(len(observed.training_pods(zone))),
        pending=_pending(observed, state),
        name=zone,
    )


def _pending(observed: ObservedPlacement, state: PlacementState) -> int:
    """Return the number of workers that are not running yet but are expected to run.

    Pods without a node are included while the job starts, and later while others train: a group that has lost all
    its machines does not wait. While other zones are searched, only pods that have a node are included, since each
    new request in this zone would otherwise end the search for a while.
    """
    pods = [
        pod
        for pod in observed.workers(state.zone)
        if pod.phase == "Pending" and not pod.terminating and not pod.on_demand
    ]
    bound = sum(pod.node is not None for pod in pods)
    training_workers = len(observed.training_pods(state.zone))
    if state.state is PlacementPhase.SEARCHING:
        return bound
    if observed.is_starting:
        return observed.desired_workers - training_workers
    seconds = observed.settings.start_seconds
    recent_requests = sum(
        pod.node is None and observed.now < observed.time_after(pod.created, seconds)
        for pod in pods
    )
    return bound + (recent_requests if observed.usable_machines(training_workers) else 0)


def _offer(observed: ObservedPlacement, zone: str) -> int | None:
    """Return the number of machines that another zone offers; None without an offer, or until it is complete."""
    bound_times = _bound_times(observed, zone)
    if not bound_times or (
        len(bound_times) < observed.desired_workers
        and _offer_complete_at(observed, zone) > observed.now
    ):
        return None
    return observed.usable_machines(len(bound_times))


def _bound_times(observed: ObservedPlacement, zone: str) -> list[datetime]:
    return [
        pod.bound_since
        for pod in observed.placeholders
        if pod.zone == zone and pod.bound_since is not None and not pod.ended
    ]


def _offer_complete_at(observed: ObservedPlacement, zone: str) -> datetime:
    return observed.time_after(
        max(_bound_times(observed, zone)), observed.settings.further_node_seconds
    )


def _with_decision(
    observed: ObservedPlacement,
    state: PlacementState,
    zones: Sequence[str],
    offers: Mapping[str, int | None],
    decision: PlacementDecision,
) -> PlacementState:
    """Return the state after a decision."""
    zone = zones[decision.zone]
    if zone != state.zone:
        return _begin_move(observed, state, zone, offers[zone] or 0, decision.reason)
    short_since = decision.policy_state.short_since
    state_since = state.since if decision.state is state.state else observed.now
    return replace(
        state,
        state=decision.state,
        since=state_since,
        short_since=None if short_since is None else state.short_since or observed.now,
        insufficient_offers=_insufficient_offers(observed, state, offers, decision),
    )


def _begin_move(
    observed: ObservedPlacement, state: PlacementState, zone: str, offered: int, reason: str
) -> PlacementState:
    move = GroupMove(
        began=observed.now,
        origin=state.zone,
        destination=zone,
        target=min(offered, observed.desired_workers),
        reason=reason,
    )
    return PlacementState(
        zone=zone,
        state=PlacementPhase.MOVING,
        since=observed.now,
        moves=(*state.moves, move)[-MAX_MOVES:],
        move_count=state.move_count + 1,
    )


def _insufficient_offers(
    observed: ObservedPlacement,
    state: PlacementState,
    offers: Mapping[str, int | None],
    decision: PlacementDecision,
) -> dict[str, InsufficientOffer]:
    """Return the insufficient offers that are still valid; empty unless other zones are searched."""
    if decision.state is not PlacementPhase.SEARCHING:
        return {}
    retry_at = observed.time_after(observed.now, observed.settings.retry_seconds)
    old = {
        zone: offer
        for zone, offer in state.insufficient_offers.items()
        if offer.retry_at > observed.now
    }
    new = {
        zone: InsufficientOffer(machines=offer, retry_at=retry_at)
        for zone, offer in offers.items()
        if offer is not None and zone not in old
    }
    return old | new


def _waits_for_retry(
    observed: ObservedPlacement,
    state: PlacementState,
    observations: Mapping[str, ZoneObservation],
    zone: str,
) -> bool:
    """Return True if no machines are requested in a zone now, since its last offer would still be insufficient."""
    offer = state.insufficient_offers.get(zone)
    if offer is None:
        return False
    here, other = observations[state.zone], observations[zone]
    return offer.machines < required_offer(_config(observed), here, other)


def _advance_move(observed: ObservedPlacement, state: PlacementState) -> PlacementState:
    """Return the state with the current move ended or abandoned, if it is complete or overdue."""
    move = state.move
    if move is None:
        return state
    if not observed.workers(move.leaving_zone):
        return _with_move(state, replace(move, ended=observed.now))
    overdue = observed.time_after(move.began, observed.settings.move_seconds) <= observed.now
    is_behind = len(observed.training_pods(move.leaving_zone)) > len(
        observed.training_pods(state.zone)
    )
    if overdue and is_behind and not move.abandoned:
        return replace(_with_move(state, replace(move, abandoned=True)), zone=move.origin)
    return state


def _with_move(state: PlacementState, move: GroupMove) -> PlacementState:
    return replace(state, moves=(*state.moves[:-1], move))


def _leaving_pods(observed: ObservedPlacement, state: PlacementState) -> Iterator[Pod]:
    """Yield the pods to delete because the group runs in another zone.

    Old workers that train stay until the new workers have taken over. Then all of them leave in one pass, so that the
    group changes once. If old workers fill the group, no new worker can join: one old worker leaves first.
    """
    move = state.move
    if move is None:
        return
    old_pods = observed.running_pods(move.leaving_zone)
    leaving_pods = old_pods if move.abandoned or _has_taken_over(observed, state, move) else []
    if not leaving_pods and _is_full(observed, move) and _enough_run(observed, state, move):
        leaving_pods = old_pods[-1:]
    for pod in observed.workers(move.leaving_zone):
        is_idle = pod.phase not in ("Running", "Succeeded")
        if not pod.terminating and (pod in leaving_pods or is_idle):
            yield pod


def _has_taken_over(observed: ObservedPlacement, state: PlacementState, move: GroupMove) -> bool:
    """Return True if the group can train without the workers of the old zone, or if the move must not wait longer."""
    settings = observed.settings
    limit = observed.time_after(move.began, settings.move_seconds + settings.join_seconds)
    if limit <= observed.now:
        return True
    joined_or_late = sum(time <= observed.now for time in _join_limits(observed, state.zone))
    return _enough_run(observed, state, move) and joined_or_late >= _required_workers(
        observed, state, move
    )


def _enough_run(observed: ObservedPlacement, state: PlacementState, move: GroupMove) -> bool:
    """Return True if as many workers run in the new zone as it offered, or no further worker is expected."""
    if observed.time_after(move.began, observed.settings.move_seconds) <= observed.now:
        return True  # otherwise the move would be abandoned
    return len(observed.training_pods(state.zone)) >= _target(observed, move)


def _target(observed: ObservedPlacement, move: GroupMove) -> int:
    return max(min(move.target, observed.desired_workers), 1)


def _required_workers(observed: ObservedPlacement, state: PlacementState, move: GroupMove) -> int:
    """Return how many workers of the new zone must have joined, limited by how many the group can still add."""
    free_slots = max(observed.max_workers - len(observed.running_pods(move.leaving_zone)), 1)
    expected = min(_target(observed, move), len(observed.training_pods(state.zone)))
    return min(expected, free_slots)


def _is_full(observed: ObservedPlacement, move: GroupMove) -> bool:
    return len(observed.running_pods(move.leaving_zone)) >= observed.max_workers


def _join_limits(observed: ObservedPlacement, zone: str) -> list[datetime]:
    """Return the time until which a move waits for each running worker of a zone: now for a worker that has joined."""
    seconds = observed.settings.join_seconds
    return [
        observed.now
        if pod.uid in observed.joined
        else observed.time_after(pod.started or observed.now, seconds)
        for pod in observed.running_pods(zone)
        if not pod.interrupted
    ]


def _joined_workers(observed: ObservedPlacement, zone: str) -> int:
    return sum(pod.uid in observed.joined for pod in observed.running_pods(zone))


def _with_unjoined(observed: ObservedPlacement, state: PlacementState) -> PlacementState:
    """Return the state with the number of workers that have not joined, once the old workers leave without them."""
    move = state.move
    if move is None or move.abandoned or not observed.running_pods(move.leaving_zone):
        return state
    missing = _required_workers(observed, state, move) - _joined_workers(observed, state.zone)
    if missing <= 0 or not _has_taken_over(observed, state, move):
        return state
    return _with_move(state, replace(move, unjoined=missing))


def _reason(
    observed: ObservedPlacement,
    state: PlacementState,
    requests: Mapping[str, int],
    decision: PlacementDecision,
) -> str:
    """Return the reason for the state of the group; without elapsed times, since each change is written."""
    if state.move is not None:
        return _move_reason(observed, state, state.move)
    parts = [decision.reason]
    if state.state is PlacementPhase.SEARCHING:
        parts += [f"requested in {', '.join(requests)}"] if requests else []
        parts += [
            f"{zone} offered {offer.machines}, too few; the next request there is at {format_time(offer.retry_at)}"
            for zone, offer in sorted(state.insufficient_offers.items())
        ]
    if state.state is PlacementPhase.SHORT and state.moved_at and state.short_since:
        next_at = observed.time_after(state.moved_at, observed.settings.move_interval_seconds)
        parts += (
            [f"the next move is possible at {format_time(next_at)}"]
            if next_at > observed.now
            else []
        )
    starved = state.state in (PlacementPhase.SEARCHING, PlacementPhase.SHORT)
    if (
        starved
        and state.short_since
        and not observed.usable_machines(len(observed.training_pods(state.zone)))
    ):
        parts += [f"too few to train since {format_time(state.short_since)}; {HELP}"]
    return "; ".join(parts)


def _move_reason(observed: ObservedPlacement, state: PlacementState, move: GroupMove) -> str:
    workers_here, workers_leaving = (
        len(observed.training_pods(state.zone)),
        len(observed.training_pods(move.leaving_zone)),
    )
    if move.abandoned:
        return (
            f"back to {state.zone}, since too few workers ran in {move.destination}; "
            f"{workers_leaving} are still leaving"
        )
    return (
        f"from {move.origin} to {move.destination}, since {move.reason}; {workers_here} of {move.target} workers run "
        f"in {move.destination}, {_joined_workers(observed, move.destination)} have joined, "
        f"{workers_leaving} still train in {move.origin}"
    )


def _wake_times(observed: ObservedPlacement, state: PlacementState) -> Iterator[datetime]:
    """Yield the times at which a rule may decide differently without an event."""
    settings = observed.settings
    if state.short_since:
        yield observed.time_after(state.short_since, settings.short_seconds)
    if observed.starting_since:
        yield observed.time_after(observed.starting_since, settings.start_seconds)
    if state.moved_at:
        yield observed.time_after(state.moved_at, settings.move_interval_seconds)
    if state.move:
        yield observed.time_after(state.move.began, settings.move_seconds)
        yield observed.time_after(state.move.began, settings.move_seconds + settings.join_seconds)
        join_limits = _join_limits(observed, state.zone)
        yield from join_limits
        if any(time > observed.now for time in join_limits):
            yield observed.time_after(observed.now, JOIN_POLL_SECONDS)
    for pod in observed.workers(state.zone):
        if pod.node is None:
            yield observed.time_after(pod.created, settings.start_seconds)
    for zone in {pod.zone for pod in observed.placeholders if pod.bound_since and not pod.ended}:
        yield _offer_complete_at(observed, zone)
    yield from (offer.retry_at for offer in state.insufficient_offers.values())
