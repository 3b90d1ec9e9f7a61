"""Log messages about the nodes that a waiting agent lacks. Pure."""

from dataclasses import dataclass

from everstep.elastic.membership.generations import GroupLimits, still_training
from everstep.elastic.membership.group_changes import enumerated
from everstep.elastic.membership.run_view import RunView

QUIET_SECONDS = 1.0  # a regroup is shorter, and would only fill the log
CHANGE_SECONDS = 5.0  # interval between two log lines if the shortage changes: a hundred nodes may arrive one by one
REPEAT_SECONDS = 60.0  # interval between two log lines if it does not change


@dataclass(frozen=True)
class Shortage:
    """Too few members are ready for the next generation.

    Attributes:
        ready: members that a generation could include.
        needed: minimum size of a group.
        lost: nodes of the last generation that have no member now.
    """

    ready: int
    needed: int
    lost: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the sentence for the log."""
        lost = f"; lost {enumerated(self.lost)}" if self.lost else ""
        return f"waiting for nodes: {self.ready} of at least {self.needed} ready{lost}"


def find_shortage(view: RunView, limits: GroupLimits) -> Shortage | None:
    """Return the shortage that keeps the next generation from being formed.

    Args:
        view: complete view of the run.
        limits: limits of the group.

    Returns:
        None if enough members are ready, or if others still train.
    """
    ready = len(view.candidates(limits))
    if ready >= limits.min_members or still_training(view.members, view.current):
        return None
    group = view.current.members if view.current else ()
    present = {member.node for member in view.members.values()}
    lost = [node for node in map(view.node, group) if node not in present]
    return Shortage(ready, limits.min_members, tuple(lost))


@dataclass
class ShortageLog:
    """The times at which one agent logs its shortage."""

    _began_at: float | None = None
    _logged: Shortage | None = None
    _logged_at: float = float("-inf")

    def take(self, shortage: Shortage | None, now: float) -> Shortage | None:
        """Return the shortage if it should be logged now.

        Args:
            shortage: the present one, None if there is none.
            now: any monotonic clock, in seconds. Call it about once a second.
        """
        if shortage is None:
            self._began_at = self._logged = None
            return None
        if self._began_at is None:
            self._began_at = now
        interval = REPEAT_SECONDS if shortage == self._logged else CHANGE_SECONDS
        if now - self._began_at < QUIET_SECONDS or (
            self._logged and now - self._logged_at < interval
        ):
            return None
        self._logged, self._logged_at = shortage, now
        return shortage
