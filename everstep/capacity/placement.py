"""Choice of the zone in which the group runs, as pure functions of the observations, the time and the policy's state.

Sending gradients between zones costs money and time, so the group runs in one zone. A controller knows how many
machines it runs there and how many it waits for. About another zone it knows only the result of a request, so
the policy requests machines in other zones while its own has too few, and moves if one of them has clearly more.
A refused request costs nothing.

Of several zones whose offers justify a move, the zone with the most productive machines is chosen, then the cheapest.
A lower price is never the reason for a move.

The rules are tried in order and the first that matches decides. docs/capacity.md has the states and their transitions.
A reason contains no elapsed time, because a controller writes it to the job's status whenever it changes.

The controller imports this module. Its image has only a part of Everstep, so this module imports only `lifetimes`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import floor, inf

from everstep.capacity.lifetimes import PRIOR_LIFETIME_SECONDS, START_SECONDS, productive_share

EQUAL_SHARE = 0.95
"""Offers with at least this share of the most productive machines count as equal, so that their price decides: the
expected lifetimes are estimates from few losses."""


class PlacementPhase(StrEnum):
    """Phase of the group's placement in a zone."""

    SETTLED = "settled"  # nothing to gain from another zone
    SHORT = "short"  # fewer machines than desired, but other zones are not tried
    SEARCHING = "searching"  # machines are requested in other zones
    MOVING = "moving"  # the group moves to another zone


@dataclass(frozen=True)
class ZoneObservation:
    """Observed state of one zone.

    Attributes:
        running: machines of the group in this zone.
        pending: machines requested in this zone that neither run nor were refused.
        offered: machines that the zone offered in response to a request of this pass; None if
            nothing was requested there.
        price: USD per hour of one spot machine; None if it is not known, which counts as the highest price.
        interrupted: running machines that have an interruption notice; they count as lost already.
        name: name of the zone, for reasons.
        lifetime_seconds: expected lifetime of a spot machine.
        max_price: price ceiling of the zone in USD per hour; None means any price.
    """

    running: int = 0
    pending: int = 0
    offered: int | None = None
    price: float | None = None
    interrupted: int = 0
    name: str = "another zone"
    lifetime_seconds: float = PRIOR_LIFETIME_SECONDS
    max_price: float | None = None

    @property
    def admitted(self) -> bool:
        """True if the price is within the ceiling; an unknown price is above any ceiling."""
        return self.max_price is None or self.comparable_price <= self.max_price

    @property
    def uninterrupted(self) -> int:
        """Running machines without an interruption notice."""
        return self.running - self.interrupted

    @property
    def comparable_price(self) -> float:
        """The price, infinite if it is not known."""
        return inf if self.price is None else self.price


@dataclass(frozen=True)
class Observation:
    """Observed state of all zones in one pass.

    Attributes:
        seconds: time since the job began, or the time of a clock.
        zones: the zones, by position.
        moving: True while a move is under way.
    """

    seconds: float
    zones: tuple[ZoneObservation, ...]
    moving: bool = False


@dataclass(frozen=True, kw_only=True)
class PlacementConfig:
    """Settings of the policy.

    Attributes:
        machines: desired number of machines.
        short_seconds: time with too few machines after which other zones are tried.
        min_gain: machines that another zone must offer beyond those that run here.
        min_gain_ratio: minimum ratio of the machines that another zone offers to those that run here; the product is
            rounded to whole machines.
        move_interval_seconds: minimum time between two moves.
        start_seconds: time from the request of a machine until it trains.
    """

    machines: int
    short_seconds: float = 600.0
    min_gain: int = 2
    min_gain_ratio: float = 1.25
    move_interval_seconds: float = 3600.0
    start_seconds: float = START_SECONDS


@dataclass(frozen=True)
class PolicyState:
    """State of the policy between two passes.

    Attributes:
        zone: position of the group's zone.
        short_since: time at which the zone began to have too few machines; None while it has enough.
        moved_at: time of the last move; None before the first.
    """

    zone: int
    short_since: float | None = None
    moved_at: float | None = None


@dataclass(frozen=True)
class PlacementDecision:
    """The result of one pass.

    Attributes:
        state: phase of the placement.
        zone: position of the group's zone from now on.
        search: positions of the other zones in which to request machines until the next pass.
        reason: reason for the decision, for the job's status.
        policy_state: argument of the next pass.
    """

    state: PlacementPhase
    zone: int
    search: tuple[int, ...]
    reason: str
    policy_state: PolicyState


@dataclass(frozen=True)
class _Pass:
    """One pass: the observation, and the values that the rules derive from it."""

    config: PlacementConfig
    observed: Observation
    policy_state: PolicyState

    @property
    def zone_state(self) -> ZoneObservation:
        return self.observed.zones[self.policy_state.zone]

    @property
    def others(self) -> tuple[int, ...]:
        """Other zones whose price is within their ceiling, the cheapest first."""
        zones = self.observed.zones
        allowed = [
            zone
            for zone, zone_state in enumerate(zones)
            if zone != self.policy_state.zone and zone_state.admitted
        ]
        return tuple(sorted(allowed, key=lambda zone: zones[zone].comparable_price))

    @property
    def candidates(self) -> tuple[int, ...]:
        """Zones whose offer could justify a move."""
        return tuple(zone for zone in self.others if self.required(zone) <= self.config.machines)

    @property
    def seconds_since_move(self) -> float:
        moved_at = self.policy_state.moved_at
        return float("inf") if moved_at is None else self.observed.seconds - moved_at

    @property
    def seconds_short(self) -> float:
        since = self.policy_state.short_since
        return 0.0 if since is None else self.observed.seconds - since

    @property
    def sufficient(self) -> tuple[int, ...]:
        """Zones whose offer justifies a move, the cheapest first."""
        return tuple(zone for zone in self.candidates if self.offered(zone) >= self.required(zone))

    @property
    def best(self) -> tuple[int, ...]:
        """Zones of `sufficient` with about as many productive machines as the most productive, the cheapest first."""
        highest = max(map(self.productive, self.sufficient), default=0.0)
        return tuple(
            zone for zone in self.sufficient if self.productive(zone) >= EQUAL_SHARE * highest
        )

    def offered(self, zone: int) -> int:
        """Return the machines that a zone offers, without those that the group would not use."""
        return min(self.observed.zones[zone].offered or 0, self.config.machines)

    def productive(self, zone: int) -> float:
        """Return the average number of machines of a zone's offer that train; the others start again after losses."""
        lifetime_seconds = self.observed.zones[zone].lifetime_seconds
        return self.offered(zone) * productive_share(lifetime_seconds, self.config.start_seconds)

    def required(self, zone: int) -> int:
        """Return the minimum offer of a zone that justifies a move."""
        return required_offer(self.config, self.zone_state, self.observed.zones[zone])

    @property
    def running_text(self) -> str:
        return f"{self.zone_state.uninterrupted} of {self.config.machines} machines"

    def stay(
        self, state: PlacementPhase, reason: str, *, search: bool = False
    ) -> PlacementDecision:
        return PlacementDecision(
            state,
            self.policy_state.zone,
            self.candidates if search else (),
            reason,
            self.policy_state,
        )


def required_offer(config: PlacementConfig, here: ZoneObservation, other: ZoneObservation) -> int:
    """Return the minimum offer of another zone that justifies a move.

    Such an offer has clearly more machines than run here, and more productive machines.
    """
    machines = here.uninterrupted
    if not machines:
        return 1
    clearly_more = max(machines + config.min_gain, round(machines * config.min_gain_ratio))
    here_share = productive_share(here.lifetime_seconds, config.start_seconds)
    other_share = productive_share(other.lifetime_seconds, config.start_seconds)
    more_productive = floor(machines * here_share / other_share) + 1
    return max(clearly_more, more_productive)


def place(
    config: PlacementConfig, observed: Observation, policy_state: PolicyState
) -> PlacementDecision:
    """Decide in which zone the group runs, and where else to request machines."""
    if observed.zones[policy_state.zone].uninterrupted >= config.machines:
        policy_state = (
            replace(policy_state, short_since=None)
            if policy_state.short_since is not None
            else policy_state
        )
    elif policy_state.short_since is None:
        policy_state = replace(policy_state, short_since=observed.seconds)
    current = _Pass(config, observed, policy_state)
    return next(decision for rule in RULES for decision in rule(current))


def _one_move_at_a_time(current: _Pass) -> Iterator[PlacementDecision]:
    if current.observed.moving:
        yield current.stay(PlacementPhase.MOVING, "a move is under way")


def _group_is_complete(current: _Pass) -> Iterator[PlacementDecision]:
    if current.zone_state.uninterrupted >= current.config.machines:
        yield current.stay(
            PlacementPhase.SETTLED, f"all {current.config.machines} machines run here"
        )


def _machines_are_coming(current: _Pass) -> Iterator[PlacementDecision]:
    zone = current.zone_state
    if zone.uninterrupted + zone.pending >= current.config.machines:
        yield current.stay(
            PlacementPhase.SETTLED, f"{zone.pending} more machines are starting here"
        )


def _no_other_zone(current: _Pass) -> Iterator[PlacementDecision]:
    if not current.others:
        yield current.stay(PlacementPhase.SETTLED, "no other zone is eligible")


def _too_few_missing(current: _Pass) -> Iterator[PlacementDecision]:
    if not current.candidates:
        reason = f"{current.running_text}; a move would have to gain more machines than are missing"
        yield current.stay(PlacementPhase.SHORT, reason)


def _recently_short(current: _Pass) -> Iterator[PlacementDecision]:
    config = current.config
    if current.zone_state.uninterrupted and current.seconds_short < config.short_seconds:
        reason = f"{current.running_text}; other zones are tried after {config.short_seconds:.0f} s"
        yield current.stay(PlacementPhase.SHORT, reason)


def _recently_moved(current: _Pass) -> Iterator[PlacementDecision]:
    interval = current.config.move_interval_seconds
    if current.seconds_since_move < interval:
        reason = f"{current.running_text}; the last move was less than {interval:.0f} s ago"
        yield current.stay(PlacementPhase.SHORT, reason)


def _clearly_more_elsewhere(current: _Pass) -> Iterator[PlacementDecision]:
    if not current.best:
        return
    best = current.best[0]
    zone = current.observed.zones[best]
    reason = (
        f"{zone.name} offers {zone.offered} machines, {current.zone_state.uninterrupted} run here"
    )
    policy_state = PolicyState(best, moved_at=current.observed.seconds)
    yield PlacementDecision(
        PlacementPhase.MOVING, best, (), reason + _comparison(current), policy_state
    )


def _comparison(current: _Pass) -> str:
    """Return why the best zone was chosen; empty if no other zone justifies a move."""
    sufficient, best = len(current.sufficient), len(current.best)
    if sufficient == 1:
        return ""
    if best == 1:
        return f"; of {sufficient} such zones it has the most productive machines"
    prices = [current.observed.zones[zone].comparable_price for zone in current.best]
    rank = "the cheapest" if prices[0] < prices[1] else "the first"
    return f"; of {best} zones with about as many productive machines it is {rank}"


def _search(current: _Pass) -> Iterator[PlacementDecision]:
    reason = f"{current.running_text}; no other zone has clearly more yet"
    yield current.stay(PlacementPhase.SEARCHING, reason, search=True)


RULES: Sequence[Callable[[_Pass], Iterator[PlacementDecision]]] = (
    _one_move_at_a_time,
    _group_is_complete,
    _machines_are_coming,
    _no_other_zone,
    _too_few_missing,
    _recently_short,
    _recently_moved,
    _clearly_more_elsewhere,
    _search,
)
"""The rules in the order in which they are tried; the last one always decides."""
