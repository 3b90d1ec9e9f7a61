"""Reasons to end the current generation: a loss, a leaver, joiners. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from everstep.elastic.membership.generations import Generation, GroupLimits
from everstep.elastic.membership.joining import Joining, rejoin_grace_seconds
from everstep.elastic.membership.run_view import RunView

MAX_NAMED_NODES = 8  # nodes in one message


@dataclass
class GroupChanges:
    """The changes of one generation that an agent with a full view observes, and their times."""

    _number: int = 0  # number of the generation to which the times apply
    _began_at: float = float("-inf")
    _ahead_since: float | None = None  # when a peer left the group gracefully
    _joining: Joining = field(default_factory=Joining)

    def begin(self, group: Generation, limits: GroupLimits, now: float) -> None:
        """Start the timers of a new generation; do nothing for the same one."""
        if group.number != self._number:
            self._number, self._ahead_since, self._began_at = group.number, None, now
            self._joining.begin(group, limits, now)

    def rejoin_grace_seconds(self, group: Generation | None, now: float) -> float:
        """Return how long to delay the next proposal for members that may return."""
        is_known = group is not None and group.number == self._number
        return rejoin_grace_seconds(group, now - self._began_at) if is_known else 0.0

    def next_due(self, limits: GroupLimits) -> list[float]:
        """Return the times at which the generation may have to end, even without another event."""
        due_times = (
            []
            if self._ahead_since is None
            else [self._ahead_since + limits.graceful_leave_lag_seconds]
        )
        return [self._joining.due_at, *due_times]

    def lost_nodes(self, view: RunView, group: Generation, *, in_outage_grace: bool) -> list[str]:
        """Return the nodes of the members that no longer train with this group."""
        return [
            view.node(name) for name in view.stopped_members(group, in_outage_grace=in_outage_grace)
        ]

    def may_be_ahead(
        self,
        view: RunView,
        group: Generation,
        limits: GroupLimits,
        now: float,
        *,
        regroups: bool,
    ) -> bool:
        """Return True if the missing members may have just left after the step that all agreed on.

        Stopping the workers now would break that step's all-reduce if they are still in it. A member that
        died instead breaks a connection immediately, or is detected at the end of this grace period.

        Args:
            view: view of the run.
            group: the generation.
            limits: limits of the group.
            now: current time in seconds.
            regroups: whether the members leave the generation after a step.
        """
        if not regroups and any(name not in view.members for name in group.members):
            return False
        if self._ahead_since is None:
            self._ahead_since = now
        return now - self._ahead_since < limits.graceful_leave_lag_seconds

    def reason_to_regroup(
        self, view: RunView, group: Generation, limits: GroupLimits, now: float, *, admits: bool
    ) -> str:
        """Return why the group should change after a step; empty if it should not.

        Args:
            view: view of the run.
            group: the generation.
            limits: limits of the group.
            now: current time in seconds.
            admits: whether joiners are a reason.
        """
        if leavers := view.leavers(group):
            return f"{name_list(leavers)} {'leaves' if len(leavers) == 1 else 'leave'}"
        free_places = limits.max_members - len(group.members)
        joiners = view.joiners(group) if admits and free_places > 0 else []
        if not joiners:
            self._joining.reset()
        elif self._joining.is_due(group, now):
            return f"{name_list(sorted(joiners))} {'joins' if len(joiners) == 1 else 'join'}"
        return ""


def name_list(names: Sequence[str]) -> str:
    """Return names as a list for a sentence; of many names, only the first and the number of the others."""
    unnamed = len(names) - MAX_NAMED_NODES
    return ", ".join(names[:MAX_NAMED_NODES]) + (f" and {unnamed} more" if unnamed > 0 else "")
