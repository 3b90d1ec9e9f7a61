"""One agent's view of the run's keys in etcd, and the facts that follow from this view. Pure."""

from dataclasses import dataclass, field

from everstep.elastic.membership.coordinators import Coordinators, Instructions, is_large
from everstep.elastic.membership.events import (
    CoordinatorPut,
    CoordinatorRemoved,
    Event,
    GenerationPut,
    Instruction,
    MemberPut,
    MemberRemoved,
    MembershipSnapshot,
)
from everstep.elastic.membership.generations import (
    Generation,
    GroupLimits,
    Member,
    can_join,
    compatible_members,
    rank,
    rank_key,
    trains,
    waiting_members,
)


@dataclass
class RunView:
    """The members and the current generation that this agent has observed.

    Attributes:
        members: members by identity. Without a complete view, the members of the current generation when it
            was agreed, some of which may be lost.
        is_complete: whether all members are watched.
        current: the last generation that this agent has read; it stays after its key is removed.
        revision: revision of the last change of the generation's key that this agent could read; 0 if there is no key.
        max_number: highest number of all generations ever observed. Numbers must grow beyond it; after
            etcd was restored from a backup, it is higher than the number of the current generation.
        coordinators: the coordinators of a large run.
        instructions: the newest instructions of the coordinators.
    """

    members: dict[str, Member] = field(default_factory=dict)
    is_complete: bool = True
    current: Generation | None = None
    revision: int = 0
    max_number: int = 0
    coordinators: Coordinators = field(default_factory=Coordinators)
    instructions: Instructions = field(default_factory=Instructions)
    _adopted_members: dict[str, Member] = field(default_factory=dict)

    def adopt(self, snapshot: MembershipSnapshot) -> None:
        """Replace the view with a snapshot, even if etcd was restored to an older state."""
        self.is_complete = snapshot.complete
        if snapshot.complete:
            self.members = {member.identity: member for member in snapshot.members}
        self.coordinators.members = {m.identity: m for m in snapshot.coordinators}
        self.instructions.adopt(snapshot.instructions)
        if snapshot.generation:
            self._accept(snapshot.generation, snapshot.revision)
        elif not snapshot.unreadable.generation:
            self.revision = 0

    def observe(self, event: Event) -> None:
        """Record a change of the keys; ignore other events."""
        match event:
            case MemberPut(member):
                self.members[member.identity] = member
            case MemberRemoved(identity):
                self.members.pop(identity, None)
            case CoordinatorPut(member):
                self.coordinators.members[member.identity] = member
            case CoordinatorRemoved(identity):
                self.coordinators.members.pop(identity, None)
            case Instruction():
                self.instructions.note(event)
            case GenerationPut(generation, revision):
                self.observe_generation(generation, revision)

    def observe_generation(self, generation: Generation, revision: int) -> None:
        """Record a generation unless a newer one is recorded."""
        if revision > self.revision:
            self._accept(generation, revision)

    def _accept(self, generation: Generation, revision: int) -> None:
        self.current, self.revision = generation, revision
        self.max_number = max(self.max_number, generation.number)
        if not self.is_complete:
            self._adopt_group(generation)

    def _adopt_group(self, generation: Generation) -> None:
        """Replace the members with the members of a generation, as they were when it was agreed.

        Most members of a large generation were in the previous one: their objects are used again.
        """
        rows = zip(generation.members, generation.endpoints, generation.orders, strict=False)
        previous, fenced = self._adopted_members, frozenset(generation.fenced)
        self._adopted_members = {
            identity: member
            if (member := previous.get(identity))
            and (member.endpoint, member.order) == (endpoint, order)
            else _member_of_group(identity, endpoint, order)
            for identity, endpoint, order in rows
            if identity not in fenced
        }
        self.members = dict(self._adopted_members)

    def ranked_coordinators(self, limits: GroupLimits) -> list[str]:
        """Return the coordinators, in the order in which they claimed the role; none in a small run."""
        return self.coordinators.ranked_identities(limits) if is_large(limits) else []

    def candidates(self, limits: GroupLimits) -> list[Member]:
        """Return the members that the next generation may include, by rank."""
        candidates = waiting_members(self.members, self.current)
        return compatible_members(rank(candidates, self.current, self.ranked_coordinators(limits)))

    def first_candidate(self, limits: GroupLimits) -> str:
        """Return the identity of the first of `candidates`, without sorting them; empty if there is none."""
        waiting = waiting_members(self.members, self.current)
        if any(member.avoids for member in waiting):
            waiting = self.candidates(limits)
        key = rank_key(self.current, self.ranked_coordinators(limits))
        return min(waiting, key=key).identity if waiting else ""

    def is_left_out(self, identity: str, limits: GroupLimits) -> bool:
        """Return True if a member waits, but no generation may include it."""
        waiting = waiting_members(self.members, self.current)
        if not any(member.avoids for member in waiting):
            return False
        waits = any(member.identity == identity for member in waiting)
        return waits and identity not in {m.identity for m in self.candidates(limits)}

    def stopped_members(self, group: Generation, *, in_outage_grace: bool) -> list[str]:
        """Return the members that no longer train with a group.

        Args:
            group: the generation.
            in_outage_grace: if True, a missing key is ignored: only members that report that they have stopped, or are
                fenced, count.
        """
        stopped_names = [
            name for name in group.members if not trains(self.members.get(name), group)
        ]
        if in_outage_grace:
            fenced = self.current.fenced if self.current else ()
            return [name for name in stopped_names if name in self.members or name in fenced]
        return stopped_names

    def has_fenced(self, identity: str) -> bool:
        """Return True if the others have removed a member's key because they suspect that it is lost."""
        return self.current is not None and identity in self.current.fenced

    def leavers(self, group: Generation) -> list[str]:
        """Return the nodes of a group's members that leave."""
        return [member.node for member in self._members_of(group) if member.leaving]

    def joiners(self, group: Generation) -> list[str]:
        """Return the nodes of the members that wait and could join a group."""
        waiting = waiting_members(self.members, group)
        group_members = self._members_of(group) if waiting else []
        return [member.node for member in waiting if can_join(member, group_members)]

    def _members_of(self, group: Generation) -> list[Member]:
        return [self.members[name] for name in group.members if name in self.members]

    def node(self, identity: str) -> str:
        """Return the name of a member's node, even after its key was removed: identities begin with it."""
        member = self.members.get(identity)
        return member.node if member else node_of(identity)


def _member_of_group(identity: str, endpoint: str, order: int) -> Member:
    """Return a member from the key of a large generation; its `after` is 0, so that it counts as training."""
    return Member(
        identity, node_of(identity), endpoint.rpartition(":")[0], order=order, endpoint=endpoint
    )


def node_of(identity: str) -> str:
    """Return the node name that an identity begins with."""
    return identity.rpartition("-")[0] or identity
