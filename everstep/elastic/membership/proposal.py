"""The next generation that an agent proposes, and the time of its proposal. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from everstep.elastic.membership.connectivity import ROTATE_AFTER, Connectivity
from everstep.elastic.membership.generations import Generation, GroupLimits, Member

LEAVER_FACTOR = 4
"""Multiple of `stop_seconds` for a leaving member, which may write the last checkpoint."""


@dataclass
class Overdue:
    """The members that stay in a broken generation, and the time since when each does."""

    _since: dict[str, float] = field(default_factory=dict)

    def update(self, remaining: Sequence[Member], limits: GroupLimits, now: float) -> list[str]:
        """Return the members whose time to stop is over, each once per `stop_seconds`.

        Args:
            remaining: members of the current generation that have not stopped.
            limits: limits of the group.
            now: the time.
        """
        self._since = {m.identity: self._since.get(m.identity, now) for m in remaining}
        overdue = [m.identity for m in remaining if now >= self._due(m, limits)]
        self._since |= dict.fromkeys(overdue, now)
        return overdue

    def next_due(self, members: Mapping[str, Member], limits: GroupLimits) -> list[float]:
        """Return when the time of each is over."""
        return [self._due(members[name], limits) for name in self._since if name in members]

    def _due(self, member: Member, limits: GroupLimits) -> float:
        factor = LEAVER_FACTOR if member.leaving else 1
        return self._since[member.identity] + factor * limits.stop_seconds


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

    The first in rank proposes. If it is unresponsive, the next one does after its turn,
    without the members before it.

    Args:
        ranked: the members that a generation may include, by rank.
        identity: identity of this agent.
        current: the current generation.
        limits: limits of the group.
        connectivity: the peers that this agent can train with.
    """
    ranked = _rotated(ranked, identity, current, limits, connectivity)
    position = next((i for i, member in enumerate(ranked) if member.identity == identity), None)
    if position is None:
        return None
    wait = max(_window_seconds(ranked, current, limits), connectivity.backoff_seconds())
    members = ranked[position:][: limits.max_members]
    return Proposal(tuple(members), wait + position * limits.turn_seconds)


def _rotated(
    ranked: list[Member],
    identity: str | None,
    current: Generation | None,
    limits: GroupLimits,
    connectivity: Connectivity,
) -> list[Member]:
    """Leave one member out in turn while no group of this agent has taken a step."""
    is_small = len(ranked) <= max(limits.min_members, 1)
    if current is None or is_small or connectivity.proven or connectivity.futile < ROTATE_AFTER:
        return ranked
    skipped = current.number % len(ranked)
    others = [*ranked[:skipped], *ranked[skipped + 1 :]]
    # The one left out proposes last, in case the others do not.
    return [*others, ranked[skipped]] if ranked[skipped].identity == identity else others


def _window_seconds(ranked: list[Member], current: Generation | None, limits: GroupLimits) -> float:
    """Return how long to wait for latecomers: a continued or full group waits for none."""
    full = len(ranked) >= limits.max_members
    continued = current is not None and any(m.identity in current.ranks for m in ranked)
    return 0.0 if full or continued else limits.join_window_seconds
