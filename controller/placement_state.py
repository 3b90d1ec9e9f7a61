"""The zone of a job and its moves, as they are stored in the job's status."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controller.lifetimes import LifetimeState
from controller.timestamps import format_time, parse_time
from everstep.capacity.placement import PlacementPhase

MAX_MOVES = 10  # limit for the moves in the status, which has to stay small


@dataclass(frozen=True, kw_only=True)
class GroupMove:
    """A move of the group from one zone to another.

    Attributes:
        began: time of the decision.
        origin: zone of the group before the move.
        destination: zone of the group after the move.
        target: machines that the new zone offered.
        reason: reason for the move.
        abandoned: True if the group returned because too few workers ran in the new zone.
        unjoined: workers of the new zone that had not joined when the workers of the old zone had to leave.
        ended: time at which no worker was left in the zone that the group leaves; None before.
    """

    began: datetime
    origin: str
    destination: str
    target: int
    reason: str
    abandoned: bool = False
    unjoined: int = 0
    ended: datetime | None = None

    @property
    def leaving_zone(self) -> str:
        """The zone that the group leaves."""
        return self.destination if self.abandoned else self.origin

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> "GroupMove":
        """Parse a move's JSON."""
        started_at = parse_time(source["began"])
        assert started_at is not None  # noqa: S101  (this controller wrote it)
        return cls(
            began=started_at,
            origin=source["from"],
            destination=source["to"],
            target=source["target"],
            reason=source["reason"],
            abandoned=source.get("abandoned", False),
            unjoined=source.get("unjoined", 0),
            ended=parse_time(source.get("ended")),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the move's JSON, without empty values."""
        fixed = {
            "began": format_time(self.began),
            "from": self.origin,
            "to": self.destination,
            "target": self.target,
            "reason": self.reason,
        }
        optional = {
            "abandoned": self.abandoned,
            "unjoined": self.unjoined,
            "ended": format_time(self.ended) if self.ended else None,
        }
        return fixed | {key: value for key, value in optional.items() if value}


@dataclass(frozen=True, kw_only=True)
class InsufficientOffer:
    """The offer of a zone that has too few machines for a move.

    Attributes:
        machines: number of machines that the zone offered.
        retry_at: time of the next request.
    """

    machines: int
    retry_at: datetime


@dataclass(frozen=True, kw_only=True)
class PlacementState:
    """The part of the job's status about its zone.

    Attributes:
        zone: zone of the group; new workers are created there.
        state: state of the policy.
        since: time of the last change of the state.
        reason: reason for the state, and a possible fix.
        short_since: time since which the zone has had too few machines; None while it has enough.
        moves: the newest moves, in order.
        move_count: number of all moves.
        insufficient_offers: newest insufficient offer of each other zone.
        lifetimes: observed lifetimes of the job's spot machines; None before the first count.
    """

    zone: str
    state: PlacementPhase
    since: datetime
    reason: str = ""
    short_since: datetime | None = None
    moves: tuple[GroupMove, ...] = ()
    move_count: int = 0
    insufficient_offers: Mapping[str, InsufficientOffer] = field(default_factory=dict)
    lifetimes: LifetimeState | None = None

    @property
    def move(self) -> GroupMove | None:
        """The current move; None if the group does not move."""
        return self.moves[-1] if self.moves and self.moves[-1].ended is None else None

    @property
    def moved_at(self) -> datetime | None:
        """Time at which the last move began; None before the first."""
        return self.moves[-1].began if self.moves else None

    @classmethod
    def from_json(cls, source: Mapping[str, Any] | None) -> "PlacementState | None":
        """Parse the JSON in a job's status; None if there is none."""
        since = parse_time((source or {}).get("since"))
        if not source or since is None:
            return None
        return cls(
            zone=source["zone"],
            state=PlacementPhase(source["state"]),
            since=since,
            reason=source.get("reason", ""),
            short_since=parse_time(source.get("shortSince")),
            moves=tuple(GroupMove.from_json(move) for move in source.get("moves") or ()),
            move_count=source.get("moveCount", 0),
            insufficient_offers=dict(_insufficient_offers(source.get("tooFew") or ())),
            lifetimes=LifetimeState.from_json(source.get("lifetimes")),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON, without empty values."""
        fixed = {
            "zone": self.zone,
            "state": str(self.state),
            "since": format_time(self.since),
            "reason": self.reason,
        }
        optional: dict[str, Any] = {
            "shortSince": format_time(self.short_since) if self.short_since else None,
            "moves": [move.to_json() for move in self.moves],
            "moveCount": self.move_count,
            "tooFew": [
                {
                    "zone": zone,
                    "machines": offer.machines,
                    "retryAt": format_time(offer.retry_at),
                }
                for zone, offer in sorted(self.insufficient_offers.items())
            ],
            "lifetimes": self.lifetimes.to_json() if self.lifetimes else None,
        }
        return fixed | {key: value for key, value in optional.items() if value}


def _insufficient_offers(
    source: Iterable[Mapping[str, Any]],
) -> list[tuple[str, InsufficientOffer]]:
    offers = []
    for item in source:
        retry_at = parse_time(item["retryAt"])
        assert retry_at is not None  # noqa: S101  (this controller wrote it)
        offers.append(
            (item["zone"], InsufficientOffer(machines=item["machines"], retry_at=retry_at))
        )
    return offers
