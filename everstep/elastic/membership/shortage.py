"""Log messages about the nodes that a waiting agent lacks. Pure."""

from dataclasses import dataclass

from everstep.elastic.membership.generations import GroupLimits, training_members
from everstep.elastic.membership.group_changes import name_list
from everstep.elastic.membership.run_view import RunView

QUIET_SECONDS = 1.0  # a shorter shortage is an ordinary regroup and is not logged
CHANGE_SECONDS = 5.0  # interval between two log lines about a changing shortage
REPEAT_SECONDS = 60.0  # interval between two log lines about the same shortage
NEW_RUN_SECONDS = 600
"""Timeout of an agent that started after a run with the same name had ended, counted from the last node that joined.

The same as the default of torchrun's rendezvous option `join_timeout`.
"""


@dataclass(frozen=True)
class Shortage:
    """A lack of members that are ready for the next generation.

    Attributes:
        ready_members: number of members that a generation could include.
        min_members: minimum size of a group.
        lost_nodes: nodes of the last generation that have no member now.
        is_bounded: whether this agent waits for a limited time, because a run of this name ended before its start.
    """

    ready_members: int
    min_members: int
    lost_nodes: tuple[str, ...] = ()
    is_bounded: bool = False

    def __str__(self) -> str:
        """Return the sentence for the log."""
        suffix = f"; lost {name_list(self.lost_nodes)}" if self.lost_nodes else ""
        if self.is_bounded:
            suffix = (
                "; a run of this name ended before this node started, which therefore waits "
                f"{NEW_RUN_SECONDS} s for the others of a new run"
            )
        counts = f"{self.ready_members} of at least {self.min_members}"
        return f"waiting for nodes: {counts} ready{suffix}"


def find_shortage(view: RunView, limits: GroupLimits) -> Shortage | None:
    """Return the shortage that keeps the next generation from being formed.

    Args:
        view: complete view of the run.
        limits: limits of the group.

    Returns:
        None if enough members are ready, or if others still train.
    """
    if training_members(view.members, view.current):
        return None
    ready_members = len(view.candidates(limits))
    if ready_members >= limits.min_members:
        return None
    group = view.current.members if view.current else ()
    present_nodes = {member.node for member in view.members.values()}
    lost_nodes = [node for node in map(view.node, group) if node not in present_nodes]
    return Shortage(ready_members, limits.min_members, tuple(lost_nodes))


@dataclass
class ShortageLog:
    """The times at which one agent logs its shortage."""

    _began_at: float | None = None
    _last_shortage: Shortage | None = None
    _logged_at: float = float("-inf")

    def due(self, shortage: Shortage | None, now: float) -> Shortage | None:
        """Return the shortage if it should be logged now; called about once a second.

        Args:
            shortage: the current shortage, or None.
            now: any monotonic clock, in seconds.
        """
        if shortage is None:
            self._began_at = self._last_shortage = None
            return None
        if self._began_at is None:
            self._began_at = now
        interval = REPEAT_SECONDS if shortage == self._last_shortage else CHANGE_SECONDS
        if now - self._began_at < QUIET_SECONDS or (
            self._last_shortage and now - self._logged_at < interval
        ):
            return None
        self._last_shortage, self._logged_at = shortage, now
        return shortage
