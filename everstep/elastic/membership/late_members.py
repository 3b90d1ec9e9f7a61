"""Fenced members that were late, not lost: how long the others wait for them before they continue. Pure.

The others need about as long to form the next group as a late member needs to register again. Without the wait they
usually form the group just before the late member registers, and its registration changes the group a second time.
"""

from dataclasses import dataclass, field

from everstep.elastic.membership.generations import GroupLimits
from everstep.elastic.membership.run_view import RunView, node_of

RETURN_SECONDS = 0.3
"""Time from a late member's first heartbeat to its registration; 0.06 to 0.16 s on two cores (2026-11-28)."""


@dataclass
class LateMembers:
    """The members of the current generation whose heartbeats have arrived after their key was removed."""

    _until: dict[str, float] = field(default_factory=dict)  # end of the wait for each

    def record(self, identity: str, view: RunView, now: float) -> None:
        """Record a heartbeat of a member without a key; only the first one in a generation starts a wait."""
        members = view.current.ranks if view.current else {}
        self._until = {name: until for name, until in self._until.items() if name in members}
        if identity in members:
            self._until.setdefault(identity, now + RETURN_SECONDS)

    def awaited_until(self, view: RunView, limits: GroupLimits) -> float:
        """Return until when the next generation waits for late members to register; -inf if it does not wait."""
        if len(view.members) >= limits.max_members:
            return float("-inf")
        nodes = {member.node for member in view.members.values()}
        return max(
            (
                until
                for name, until in self._until.items()
                if view.has_fenced(name) and node_of(name) not in nodes
            ),
            default=float("-inf"),
        )
