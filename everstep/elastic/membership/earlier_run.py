"""The end of a run shortly before this agent's start: was it this agent's own run, or an earlier run of the same name?

etcd cannot distinguish a node that comes too late to its run from the first node of a new run of the same name. Only
a new run has more nodes. So the agent waits for a group as usual, but not forever. Pure.
"""

import math
from dataclasses import dataclass, field, replace

from everstep.elastic.membership.events import EarlierRunEnded, RunEnded
from everstep.elastic.membership.generations import GroupLimits
from everstep.elastic.membership.run_view import RunView
from everstep.elastic.membership.shortage import NEW_RUN_SECONDS, Shortage, find_shortage


@dataclass
class EarlierRun:
    """The outcome that etcd had when this agent started, if any, and how long this agent has waited for other nodes."""

    _ended: EarlierRunEnded | None = None
    _arrived: frozenset[str] = field(default_factory=frozenset)
    _arrived_at: float = math.inf  # time of the last arrival, including this agent's own

    def record(self, ended: EarlierRunEnded) -> None:
        """Record an outcome from before this agent's start; etcd may report it several times."""
        self._ended = ended

    def describe(self, shortage: Shortage | None, view: RunView) -> Shortage | None:
        """Return the shortage with what this agent does if it lasts."""
        return replace(shortage, is_bounded=True) if shortage and self._precedes(view) else shortage

    def outcome(self, view: RunView, limits: GroupLimits, now: float) -> RunEnded | None:
        """Return the outcome once this agent, which is registered, has waited too long for a new run to begin.

        Args:
            view: complete view of the run.
            limits: limits of the group.
            now: any monotonic clock, in seconds.
        """
        if self._ended is None or not self._precedes(view) or not find_shortage(view, limits):
            self._arrived, self._arrived_at = frozenset(), math.inf
            return None
        if not self._arrived.issuperset(view.members):
            self._arrived, self._arrived_at = self._arrived.union(view.members), now
        if now < self._arrived_at + NEW_RUN_SECONDS:
            return None
        ended = self._ended.outcome
        return replace(
            ended,
            reason=f"it had ended before this node started, and no new run of its name has begun: {ended.reason}",
        )

    def next_due(self) -> list[float]:
        """Return the time at which `outcome` may change without an event."""
        return [self._arrived_at + NEW_RUN_SECONDS] if self._arrived else []

    def _precedes(self, view: RunView) -> bool:
        """Return True if no generation was agreed since the outcome: otherwise a new run has begun."""
        return self._ended is not None and view.revision < self._ended.revision
