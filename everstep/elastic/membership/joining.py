"""Time at which a group admits joiners, so that simultaneous arrivals cost one regroup. Pure."""

from dataclasses import dataclass

from everstep.elastic.membership.generations import Generation, GroupLimits

IMMEDIATE_MEMBERS = 10  # a regroup of at most this many members costs less than the wait
SETTLING_SECONDS_PER_MEMBER = 0.01  # for each member above IMMEDIATE_MEMBERS
MAX_SETTLING_SECONDS = 2.0
SHORT_LIFE_SECONDS = 10.0  # age of a group up to which the load of its regroup can let leases lapse


def join_interval(group: Generation, limits: GroupLimits) -> float:
    """Return how long a group with joiners trains before it admits others, in seconds."""
    return min(limits.join_interval_seconds * len(group.members), limits.join_window_seconds)


def settling_seconds(group: Generation) -> float:
    """Return how long a group waits for nodes that arrive together with the first joiner, in seconds."""
    further_members = max(0, len(group.members) - IMMEDIATE_MEMBERS)
    return min(further_members * SETTLING_SECONDS_PER_MEMBER, MAX_SETTLING_SECONDS)


def rejoin_grace_seconds(group: Generation | None, age_seconds: float) -> float:
    """Return how long, in seconds, the members that have left a generation wait for others before they form the next.

    In a large group that has just formed, a lapsed lease usually belongs to an agent that was late, not to a
    lost machine, and the agent returns immediately. Without the wait, each such return would cost two more
    regroups, whose load could let further leases lapse.

    Args:
        group: the generation that has ended.
        age_seconds: time since it was observed.
    """
    return settling_seconds(group) if group and age_seconds < SHORT_LIFE_SECONDS else 0.0


@dataclass
class Joining:
    """The time at which the current group admits joiners.

    Attributes:
        due_at: earliest time at which joiners are admitted, of the caller's monotonic clock, in seconds.
    """

    due_at: float = float("-inf")
    _earliest: float = float("-inf")
    _has_joiners: bool = False
    _members: frozenset[str] = frozenset()

    def begin(self, group: Generation, limits: GroupLimits, now: float) -> None:
        """Record a new generation."""
        if not self._members.issuperset(group.members):
            self._earliest = now + join_interval(group, limits)
        self._members = frozenset(group.members)
        self.due_at, self._has_joiners = self._earliest, False

    def is_due(self, group: Generation, now: float) -> bool:
        """Return True if a group admits the waiting joiners now; the first call starts the settling time."""
        if not self._has_joiners:
            self._has_joiners = True
            self.due_at = max(self._earliest, now + settling_seconds(group))
        return now >= self.due_at

    def reset(self) -> None:
        """Record that no node waits."""
        self._has_joiners = False
