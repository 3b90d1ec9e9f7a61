"""One agent's proposals of the next generation, and its evictions of members that block it. Pure."""

from dataclasses import dataclass, field

from everstep.elastic.membership.connectivity import Connectivity
from everstep.elastic.membership.coordinators import is_large
from everstep.elastic.membership.events import Action, Evict, Propose
from everstep.elastic.membership.generations import GroupLimits, Member, training_members
from everstep.elastic.membership.proposal import OverdueMembers, next_proposal
from everstep.elastic.membership.run_view import RunView


@dataclass
class Proposer:
    """A waiting agent's decisions: when to propose a generation, and which members to evict.

    Attributes:
        propose_at: time at which this agent proposes unless the view changes; None if no proposal is planned.
    """

    propose_at: float | None = None
    _proposed_revision: int = -1  # the revision that a pending proposal replaces
    _complete_since: float | None = None  # time since which the same, sufficient members wait
    _returns_until: float = float("-inf")  # time until which members that were just lost may return
    _waiting_identities: frozenset[str] = frozenset()
    _overdue: OverdueMembers = field(default_factory=OverdueMembers)

    def reset(self) -> None:
        """Restart the wait: this agent has entered a generation."""
        self._complete_since = self.propose_at = None

    def repeat(self) -> None:
        """Propose again at the next event."""
        self._proposed_revision = -1

    def next_due(self, view: RunView, limits: GroupLimits) -> list[float]:
        """Return when members that do not stop will be evicted."""
        return self._overdue.next_due(view.members, limits)

    def decide(
        self,
        view: RunView,
        identity: str,
        limits: GroupLimits,
        connectivity: Connectivity,
        now: float,
        *,
        in_outage_grace: bool,
        rejoin_grace_seconds: float = 0.0,
        awaited_until: float = float("-inf"),
    ) -> list[Action]:
        """Return the proposal or the evictions that are due.

        Args:
            view: view of the run.
            identity: identity of this agent, which waits.
            limits: limits of the group.
            connectivity: the peers that this agent can train with.
            now: current time in seconds.
            in_outage_grace: whether a member without a key may still be alive, as after an outage of etcd.
            rejoin_grace_seconds: time to wait for members that may return, once enough others wait.
            awaited_until: time until which members that will return are awaited.
        """
        if training_members(view.members, view.current):
            self.reset()
            is_first = view.first_candidate(limits) == identity
            return self._evict_overdue(view, limits, now, acts=is_first and not in_outage_grace)
        ranked = view.candidates(limits)
        if len(ranked) < limits.min_members or in_outage_grace:
            self.reset()
            return []
        names = frozenset(member.identity for member in ranked)
        # Set once, not at each change of the members: a node that crashes repeatedly must not delay the others.
        if self._complete_since is None:
            self._returns_until = now + rejoin_grace_seconds
        if self._complete_since is None or names != self._waiting_identities:
            self._complete_since, self._waiting_identities = now, names
        proposal = next_proposal(ranked, identity, view.current, limits, connectivity)
        if proposal is None or len(proposal.members) < limits.min_members:
            return []
        wait_until = self._complete_since + proposal.wait_seconds
        self.propose_at = max(wait_until, self._returns_until, awaited_until)
        if now < self.propose_at or self._proposed_revision == view.revision:
            return []  # not yet, or a proposal is pending; a lost race shows as a new revision
        return [self._propose(view, ranked, proposal.members, limits)]

    def _propose(
        self, view: RunView, ranked: list[Member], members: tuple[Member, ...], limits: GroupLimits
    ) -> Propose:
        self._proposed_revision = view.revision
        number = 1 + max(view.max_number, *(member.after for member in ranked))
        listed_members = members if is_large(limits) else ()
        return Propose(
            number,
            tuple(member.identity for member in members),
            view.revision,
            endpoints=tuple(member.endpoint for member in listed_members),
            orders=tuple(member.order for member in listed_members),
        )

    def _evict_overdue(
        self, view: RunView, limits: GroupLimits, now: float, *, acts: bool
    ) -> list[Action]:
        """Evict members that stay in a generation that others have left, so that it can take no further step.

        A valid lease does not prove that its agent acts. Without the eviction, one unresponsive member would
        stop all others.
        """
        group = view.current
        remaining = training_members(view.members, group)
        if not acts or group is None or len(remaining) == len(group.members):
            remaining = []
        number = group.number if group else 0
        return [Evict(name) for name in self._overdue.update(number, remaining, limits, now)]
