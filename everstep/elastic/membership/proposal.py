"""The next generation that an agent proposes, and the time of its proposal. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from everstep.elastic.membership.connectivity import ROTATE_AFTER, Connectivity
from everstep.elastic.membership.generations import Generation, GroupLimits, Member

LEAVER_FACTOR = 4
"""Multiple of `stop_seconds` for a leaving member, which may write the last checkpoint."""


@dataclass
class OverdueMembers:
    """The members that stay in a broken generation, and the time at which the wait for each began."""

    _began_at: dict[str, float] = field(default_factory=dict)
    _number: int = 0  # number of the generation to which the times apply

    def update(
        self, number: int, remaining: Sequence[Member], limits: GroupLimits, now: float
    ) -> list[str]:
        """Return the members whose time to stop is over; the time of each then starts again.

        Args:
            number: number of the current generation. A new number restarts all times, since no call records that the
                last member of the previous generation has stopped.
            remaining: members of the current generation that have not stopped.
            limits: limits of the group.
            now: current time in seconds.
        """
        if number != self._number:
            self._number, self._began_at = number, {}
        self._began_at = {m.identity: self._began_at.get(m.identity, now) for m in remaining}
        overdue = [m.identity for m in remaining if now >= self._due(m, limits)]
        self._began_at |= dict.fromkeys(overdue, now)
        return overdue

    def next_due(self, members: Mapping[str, Member], limits: GroupLimits) -> list[float]:
        """Return when each member's time to stop is over."""
        return [self._due(members[name], limits) for name in self._began_at if name in members]

    def _due(self, member: Member, limits: GroupLimits) -> float:
        factor = LEAVER_FACTOR if member.leaving else 1
        return self._began_at[member.identity] + factor * limits.stop_seconds


@dataclass(frozen=True)
class Proposal:
    """Members to propose, by rank, and how long to wait for a better view first."""

    members: tuple[Member, ...]
    wait_seconds: float


def next_proposal(
    ranked: list[Member],
    identity: str | None,
    current: Generation | None,
    limits: GroupLimits,
    connectivity: Connectivity,
) -> Proposal | None:
    """Return the generation that an agent proposes if the view does not change; None if it is not a candidate.

    The first member in rank proposes. If it is unresponsive, the next member proposes after a turn, without the
    members before it.

    Args:
        ranked: the members that a generation may include, by rank.
        identity: identity of this agent.
        current: the current generation.
        limits: limits of the group.
        connectivity: the peers that this agent can train with.
    """
    ranked = _rotate(ranked, identity, current, limits, connectivity)
    position = next((i for i, member in enumerate(ranked) if member.identity == identity), None)
    if position is None:
        return None
    wait = max(_window_seconds(ranked, current, limits), connectivity.backoff_seconds())
    members = ranked[position:][: limits.max_members]
    return Proposal(tuple(members), wait + position * limits.turn_seconds)


def _rotate(
    ranked: list[Member],
    identity: str | None,
    current: Generation | None,
    limits: GroupLimits,
    connectivity: Connectivity,
) -> list[Member]:
    """Leave one member out in turn while no group of this agent has taken a step."""
    is_small = len(ranked) <= max(limits.min_members, 1)
    if (
        current is None
        or is_small
        or connectivity.proven_members
        or connectivity.generations_without_step < ROTATE_AFTER
    ):
        return ranked
    position = current.number % len(ranked)
    skipped_member = ranked[position]
    first, *others = [*ranked[:position], *ranked[position + 1 :]]
    if skipped_member.identity == identity:
        # It proposes second, in case the first cannot: in a large run it may be the only coordinator.
        return [first, skipped_member, *others]
    return [first, *others]


def _window_seconds(ranked: list[Member], current: Generation | None, limits: GroupLimits) -> float:
    """Return how long to wait for further members; a continued or full group does not wait."""
    is_full = len(ranked) >= limits.max_members
    is_continued = current is not None and any(m.identity in current.ranks for m in ranked)
    return 0.0 if is_full or is_continued else limits.join_window_seconds
