"""The zone of a job's workers: `everstep.capacity.placement` decides, this module observes and carries out.

Pure. The policy sees numbers of machines; they are counted here, from the job's pods and placeholders (see
`placeholders`). What a later pass needs is in the job's status, so a controller may stop at any moment.

A move never leaves the job without a group. Workers of the new zone start while the old zone's workers train;
once they have joined the group, the old ones are deleted together: they leave after the same step, and the
new ones have the state. If the old zone is empty, the new workers resume from the checkpoint. A move whose
workers do not come is abandoned, and the group goes back to the zone in which more of it trains.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from controller.objects import Placeholder, Pod
from controller.placement_settings import PlacementSettings
from controller.placement_state import KEPT_MOVES, Move, PlacementState, TooFew
from controller.timestamps import format_time
from everstep.capacity.placement import (
    Memory,
    Observation,
    PlacementConfig,
    PlacementDecision,
    State,
    ZoneObservation,
    place,
    required_offer,
)

HELP = (
    "to get machines, add a zone or instance types to cluster.gpuPools, allow on-demand machines "
    "there (fallbackNodes), raise the quota, or lower job.minReplicas"
)
JOIN_POLL_SECONDS = 1.0
"""Time until workers that have not joined are probed again; Kubernetes has no event for it."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Observed state of a job with zones.

    Attributes:
        settings: zones and times.
        wanted: workers that the job wants.
        min_workers: workers below which it does not train.
        max_workers: workers that the group takes in.
        pods: pods of its workers whose node is not lost.
        placeholders: its placeholders.
        now: the current time.
        starting_since: time at which the job started or resumed; None once a worker has run, or once
            no machine has started.
        joined: uids of the pods that are known to have joined the group.
    """

    settings: PlacementSettings
    wanted: int
    min_workers: int
    max_workers: int
    pods: Sequence[Pod]
    placeholders: Sequence[Placeholder]
    now: datetime
    starting_since: datetime | None
    joined: frozenset[str] = frozenset()

    @property
    def is_starting(self) -> bool:
        """True while the first machines of the job may be on their way."""
        since = self.starting_since
        return since is not None and self.now < self.after(since, self.settings.start_seconds)

    def workers(self, zone: str) -> list[Pod]:
        """Return the pods of a zone."""
        return [pod for pod in self.pods if pod.zone == zone]

    def training(self, zone: str) -> list[Pod]:
        """Return the running spot pods of a zone that stay: without a deletion or an interruption notice.

        On-demand workers say nothing about the spot machines of a zone.
        """
        return [pod for pod in self.running(zone) if not (pod.interrupted or pod.on_demand)]

    def running(self, zone: str) -> list[Pod]:
        """Return the running pods of a zone that are not being deleted."""
        return [pod for pod in self.workers(zone) if pod.phase == "Running" and not pod.terminating]

    def usable(self, machines: int) -> int:
        """Return a number of machines, or 0 if the job cannot train with so few."""
        return machines if machines >= self.min_workers else 0

    def after(self, moment: datetime, seconds: float) -> datetime:
        """Return a later time."""
        return moment + timedelta(seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class PlacementPlan:
    """The result of one pass.

    Attributes:
        state: the new state, for the status.
        placeholders: number of placeholders to have in each zone.
        leave: pods to delete because the group is in another zone.
        wake_times: times at which something is due without an event.
    """

    state: PlacementState
    placeholders: Mapping[str, int] = field(default_factory=dict)
    leave: tuple[Pod, ...] = ()
    wake_times: tuple[datetime, ...] = ()


def plan_placement(observed: Observed, previous: PlacementState | None) -> PlacementPlan:
    """Decide in which zone the group runs, what to request elsewhere and which workers leave."""
    state = _advance_move(observed, previous or _first(observed))
    zones = tuple(dict.fromkeys((*observed.settings.zones, state.zone)))
    offers = {zone: _answer(observed, zone) for zone in zones if zone != state.zone}
    decision = place(
        _config(observed),
        Observation(
            seconds=observed.now.timestamp(),
            zones=tuple(_observe(observed, state, zone, offers) for zone in zones),
            moving=state.move is not None,
        ),
        _memory(state, zones),
    )
    after = _with_decision(observed, state, zones, offers, decision)
    search = [zones[position] for position in decision.search]
    requests = {zone: observed.wanted for zone in search if not _waits(observed, after, zone)}
    after = _with_unjoined(observed, after)
    after = replace(after, reason=_reason(observed, after, requests, decision))
    return PlacementPlan(
        state=after,
        placeholders=requests,
        leave=tuple(_leaving(observed, after)),
        wake_times=tuple(_wake_times(observed, after)),
    )


def _first(observed: Observed) -> PlacementState:
    """Return the initial state of a job: in the zone of its workers, else in the preferred zone."""
    zones = [pod.zone for pod in observed.pods if pod.zone in observed.settings.zones]
    zone = max(zones, key=zones.count, default=observed.settings.zones[0])
    return PlacementState(zone=zone, state=State.SETTLED, since=observed.now)


def _config(observed: Observed) -> PlacementConfig:
    settings = observed.settings
    return PlacementConfig(
        machines=observed.wanted,
        short_seconds=settings.short_seconds,
        move_interval_seconds=settings.move_interval_seconds,
    )


def _memory(state: PlacementState, zones: Sequence[str]) -> Memory:
    return Memory(
        zone=zones.index(state.zone),
        short_since=state.short_since.timestamp() if state.short_since else None,
        moved_at=state.moved_at.timestamp() if state.moved_at else None,
    )


def _observe(
    observed: Observed, state: PlacementState, zone: str, offers: Mapping[str, int | None]
) -> ZoneObservation:
    if zone != state.zone:
        return ZoneObservation(offered=offers[zone], name=zone)
    return ZoneObservation(
        running=observed.usable(len(observed.training(zone))),
        pending=_pending(observed, state),
        name=zone,
    )


def _pending(observed: Observed, state: PlacementState) -> int:
    """Return the workers that do not run yet and are expected to.

    Pods without a node count while the job starts, and later while others train: a group that has lost all
    its machines does not wait. While other zones are searched only pods with a node count, since each
    new request here would otherwise end the search for a while.
    """
    pods = [
        pod
        for pod in observed.workers(state.zone)
        if pod.phase == "Pending" and not pod.terminating and not pod.on_demand
    ]
    bound = sum(pod.node is not None for pod in pods)
    training = len(observed.training(state.zone))
    if state.state is State.SEARCHING:
        return bound
    if observed.is_starting:
        return observed.wanted - training
    seconds = observed.settings.start_seconds
    young = sum(
        pod.node is None and observed.now < observed.after(pod.created, seconds) for pod in pods
    )
    return bound + (young if observed.usable(training) else 0)


def _answer(observed: Observed, zone: str) -> int | None:
    """Return how many machines another zone gives; None until that is known, and if it gives none."""
    granted = _granted(observed, zone)
    if not granted or (
        len(granted) < observed.wanted and _answered_at(observed, zone) > observed.now
    ):
        return None
    return observed.usable(len(granted))


def _granted(observed: Observed, zone: str) -> list[datetime]:
    return [
        pod.bound_since
        for pod in observed.placeholders
        if pod.zone == zone and pod.bound_since is not None and not pod.ended
    ]


def _answered_at(observed: Observed, zone: str) -> datetime:
    return observed.after(max(_granted(observed, zone)), observed.settings.answer_seconds)


def _with_decision(
    observed: Observed,
    state: PlacementState,
    zones: Sequence[str],
    offers: Mapping[str, int | None],
    decision: PlacementDecision,
) -> PlacementState:
    """Return the state after a decision."""
    zone = zones[decision.zone]
    if zone != state.zone:
        return _begin_move(observed, state, zone, offers[zone] or 0, decision.reason)
    short_since = decision.memory.short_since
    state_since = state.since if decision.state is state.state else observed.now
    return replace(
        state,
        state=decision.state,
        since=state_since,
        short_since=None if short_since is None else state.short_since or observed.now,
        too_few=_too_few(observed, state, offers, decision),
    )


def _begin_move(
    observed: Observed, state: PlacementState, zone: str, offered: int, reason: str
) -> PlacementState:
    move = Move(
        began=observed.now,
        origin=state.zone,
        to=zone,
        target=min(offered, observed.wanted),
        reason=reason,
    )
    return PlacementState(
        zone=zone,
        state=State.MOVING,
        since=observed.now,
        moves=(*state.moves, move)[-KEPT_MOVES:],
        move_count=state.move_count + 1,
    )


def _too_few(
    observed: Observed,
    state: PlacementState,
    offers: Mapping[str, int | None],
    decision: PlacementDecision,
) -> dict[str, TooFew]:
    """Return the insufficient offers that still count; without them, a search ends."""
    if decision.state is not State.SEARCHING:
        return {}
    retry_at = observed.after(observed.now, observed.settings.retry_seconds)
    old = {
        zone: too_few for zone, too_few in state.too_few.items() if too_few.retry_at > observed.now
    }
    new = {
        zone: TooFew(machines=too_few, retry_at=retry_at)
        for zone, too_few in offers.items()
        if too_few is not None and zone not in old
    }
    return old | new


def _waits(observed: Observed, state: PlacementState, zone: str) -> bool:
    """Return True if no machines are requested in a zone now, since its last offer would still be too few."""
    too_few = state.too_few.get(zone)
    if too_few is None:
        return False
    lasting = observed.usable(len(observed.training(state.zone)))
    return too_few.machines < required_offer(_config(observed), lasting)


def _advance_move(observed: Observed, state: PlacementState) -> PlacementState:
    """Return the state with the move under way ended or abandoned, if it is time."""
    move = state.move
    if move is None:
        return state
    if not observed.workers(move.left):
        return _with_move(state, replace(move, ended=observed.now))
    overdue = observed.after(move.began, observed.settings.move_seconds) <= observed.now
    behind = len(observed.training(move.left)) > len(observed.training(state.zone))
    if overdue and behind and not move.abandoned:
        return replace(_with_move(state, replace(move, abandoned=True)), zone=move.origin)
    return state


def _with_move(state: PlacementState, move: Move) -> PlacementState:
    return replace(state, moves=(*state.moves[:-1], move))


def _leaving(observed: Observed, state: PlacementState) -> Iterator[Pod]:
    """Yield the pods to delete because the group runs in another zone.

    Those that train stay until the others have taken over. Then all leave in one pass, so that the group
    changes once. A group that is full of them takes in no other: one of them leaves first.
    """
    move = state.move
    if move is None:
        return
    old = observed.running(move.left)
    leaving = old if move.abandoned or _has_taken_over(observed, state, move) else []
    if not leaving and _is_full(observed, move) and _enough_run(observed, state, move):
        leaving = old[-1:]
    for pod in observed.workers(move.left):
        if not pod.terminating and (pod in leaving or pod.phase not in ("Running", "Succeeded")):
            yield pod


def _has_taken_over(observed: Observed, state: PlacementState, move: Move) -> bool:
    """Return True if the group can train without the workers of the zone that it leaves."""
    settings = observed.settings
    bound = observed.after(move.began, settings.move_seconds + settings.join_seconds)
    if bound <= observed.now:
        return True
    waited = sum(time <= observed.now for time in _waited_until(observed, state.zone))
    return _enough_run(observed, state, move) and waited >= _required(observed, state, move)


def _enough_run(observed: Observed, state: PlacementState, move: Move) -> bool:
    """Return True if the workers that the new zone offered run there; in the end, if no further one is expected."""
    if observed.after(move.began, observed.settings.move_seconds) <= observed.now:
        return True  # otherwise it would be abandoned
    return len(observed.training(state.zone)) >= _target(observed, move)


def _target(observed: Observed, move: Move) -> int:
    return max(min(move.target, observed.wanted), 1)


def _required(observed: Observed, state: PlacementState, move: Move) -> int:
    """Return how many workers of the new zone must have joined: as many as run and as the group has places for."""
    free_places = max(observed.max_workers - len(observed.running(move.left)), 1)
    expected = min(_target(observed, move), len(observed.training(state.zone)))
    return min(expected, free_places)


def _is_full(observed: Observed, move: Move) -> bool:
    return len(observed.running(move.left)) >= observed.max_workers


def _waited_until(observed: Observed, zone: str) -> list[datetime]:
    """Return until when each running worker of a zone is awaited: the past for a worker that has joined."""
    seconds = observed.settings.join_seconds
    return [
        observed.now
        if pod.uid in observed.joined
        else observed.after(pod.started or observed.now, seconds)
        for pod in observed.running(zone)
        if not pod.interrupted
    ]


def _joined_workers(observed: Observed, zone: str) -> int:
    return sum(pod.uid in observed.joined for pod in observed.running(zone))


def _with_unjoined(observed: Observed, state: PlacementState) -> PlacementState:
    """Return the state with the number of workers that have not joined, once the old ones leave without them."""
    move = state.move
    if move is None or move.abandoned or not observed.running(move.left):
        return state
    missing = _required(observed, state, move) - _joined_workers(observed, state.zone)
    if missing <= 0 or not _has_taken_over(observed, state, move):
        return state
    return _with_move(state, replace(move, unjoined=missing))


def _reason(
    observed: Observed,
    state: PlacementState,
    requests: Mapping[str, int],
    decision: PlacementDecision,
) -> str:
    """Return why the group is where it is; without a clock, since each change is written."""
    if state.move is not None:
        return _reason_of_move(observed, state, state.move)
    parts = [decision.reason]
    if state.state is State.SEARCHING:
        parts += [f"requested in {', '.join(requests)}"] if requests else []
        parts += [
            f"{zone} gave {too_few.machines}, too few; the next request there is at {format_time(too_few.retry_at)}"
            for zone, too_few in sorted(state.too_few.items())
        ]
    if state.state is State.SHORT and state.moved_at and state.short_since:
        next_at = observed.after(state.moved_at, observed.settings.move_interval_seconds)
        parts += (
            [f"the next move is possible at {format_time(next_at)}"]
            if next_at > observed.now
            else []
        )
    starved = state.state in (State.SEARCHING, State.SHORT)
    if starved and state.short_since and not observed.usable(len(observed.training(state.zone))):
        parts += [f"too few to train since {format_time(state.short_since)}; {HELP}"]
    return "; ".join(parts)


def _reason_of_move(observed: Observed, state: PlacementState, move: Move) -> str:
    workers_here, workers_leaving = (
        len(observed.training(state.zone)),
        len(observed.training(move.left)),
    )
    if move.abandoned:
        return f"back to {state.zone}, since too few workers ran in {move.to}; {workers_leaving} still leave"
    return (
        f"from {move.origin} to {move.to}, since {move.reason}; {workers_here} of {move.target} workers run "
        f"in {move.to}, {_joined_workers(observed, move.to)} have joined, "
        f"{workers_leaving} still train in {move.origin}"
    )


def _wake_times(observed: Observed, state: PlacementState) -> Iterator[datetime]:
    """Yield the times at which a rule may decide otherwise without an event."""
    settings = observed.settings
    if state.short_since:
        yield observed.after(state.short_since, settings.short_seconds)
    if observed.starting_since:
        yield observed.after(observed.starting_since, settings.start_seconds)
    if state.moved_at:
        yield observed.after(state.moved_at, settings.move_interval_seconds)
    if state.move:
        yield observed.after(state.move.began, settings.move_seconds)
        yield observed.after(state.move.began, settings.move_seconds + settings.join_seconds)
        awaited = _waited_until(observed, state.zone)
        yield from awaited
        if any(time > observed.now for time in awaited):
            yield observed.after(observed.now, JOIN_POLL_SECONDS)
    for pod in observed.workers(state.zone):
        if pod.node is None:
            yield observed.after(pod.created, settings.start_seconds)
    for zone in {pod.zone for pod in observed.placeholders if pod.bound_since and not pod.ended}:
        yield _answered_at(observed, zone)
    yield from (too_few.retry_at for too_few in state.too_few.values())
