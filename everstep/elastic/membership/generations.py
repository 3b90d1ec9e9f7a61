"""Members of a run, the generations that they form, and their rank order. Pure."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

MAX_STALL_PROBERS = 64  # agents that probe leases at the same time when a group stalls


@dataclass(frozen=True)
class Member:
    """One node's agent, as its key in etcd describes it.

    Attributes:
        identity: name of one registration; an agent that registers again has a new one, a reclaimed key keeps it.
        node: name of the machine or pod, for messages.
        address: address at which the others reach it.
        after: number of a generation; the member waits for a later one.
        leaving: whether its node leaves; then it is not proposed again.
        order: etcd's revision at its registration; the earlier, the lower its rank.
        endpoint: `host:port` at which its agent responds to probes; empty if it does not respond to any.
        avoids: identities of the members that it cannot train with.
    """

    identity: str
    node: str
    address: str
    after: int = 0
    leaving: bool = False
    order: int = 0
    endpoint: str = ""
    avoids: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generation:
    """A group that trains together.

    Attributes:
        number: number of the generation.
        members: identities in rank order.
        store: `host:port` of the store that rank 0's agent has opened.
        fenced: members whose keys were removed on suspicion; they may not put them back.
        endpoints: `host:port` at which each member responds to probes, in rank order; only in a large run.
        orders: revisions of their registrations, as `Member.order`; only in a large run.
    """

    number: int
    members: tuple[str, ...]
    store: str = ""
    fenced: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ()
    orders: tuple[int, ...] = ()

    def is_same(self, other: "Generation") -> bool:
        """Return True if both are one agreement, even if members were fenced out since.

        The number does not suffice: if etcd loses its data and no agent is left that remembers the numbers, they
        begin again. The identities of members are never used twice.
        """
        return self.number == other.number and self.members == other.members

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Rank by identity."""
        return {identity: rank for rank, identity in enumerate(self.members)}


@dataclass(frozen=True, kw_only=True)
class GroupLimits:
    """Limits of a group.

    Attributes:
        min_members: minimum number of nodes that train.
        max_members: maximum number of nodes that train; other nodes wait as spares.
        join_window_seconds: time that the first formation waits for a full group once it could begin.
        graceful_leave_lag_seconds: time for which a peer that has left its group gracefully, after the step that all
            agreed on, may be ahead of this agent's workers before they are stopped.
        outage_grace_seconds: time after an outage of etcd during which a missing key does not mean that its member is
            lost. Longer than every agent needs to reach etcd again and to put its key back.
        join_interval_seconds: minimum time between two generations with joiners, for each member of
            the group: nodes that arrive in between join together. At most `join_window_seconds`.
        stop_seconds: time for which a member may stay in a generation that others have left already. Longer
            than its agent needs to kill workers that do not stop.
        turn_seconds: time that the next in rank waits for a proposer that does not propose.
        full_view_members: maximum size of a run in which every agent watches all members, not only the coordinators.
        coordinators: number of agents that watch all members of a large run.
    """

    min_members: int = 1
    max_members: int = 1
    join_window_seconds: float = 8.0
    graceful_leave_lag_seconds: float = 1.0
    outage_grace_seconds: float = 3.0
    join_interval_seconds: float = 0.05
    stop_seconds: float = 30.0
    turn_seconds: float = 10.0
    full_view_members: int = 64
    coordinators: int = 3


def trains(member: Member | None, group: Generation) -> bool:
    """Return True if a member has a key and has not stopped training with a group."""
    return member is not None and member.after < group.number


def waiting_members(members: Mapping[str, Member], current: Generation | None) -> list[Member]:
    """Return the members that a new generation may include: no worker running, not leaving."""
    ranks, number = (current.ranks, current.number) if current else ({}, 0)
    # The condition of `trains`, without a call for each of a thousand members.
    return [
        member
        for member in members.values()
        if not member.leaving and (member.after >= number or member.identity not in ranks)
    ]


def training_members(members: Mapping[str, Member], current: Generation | None) -> list[Member]:
    """Return the live members of the current generation that have not stopped, including leaving ones."""
    if current is None:
        return []
    ranks, number = current.ranks, current.number
    return [
        member for member in members.values() if member.after < number and member.identity in ranks
    ]


def compatible_members(candidates: Sequence[Member]) -> list[Member]:
    """Return candidates of which none avoids another, in the same order.

    The member in the most conflicting pairs is removed first; of several such members, the last one. A node that
    cannot reach the others is in a pair with each of them, while each of them is only in that pair.
    """
    present = {member.identity for member in candidates}
    pairs = {
        frozenset((member.identity, other))
        for member in candidates
        for other in member.avoids
        if other in present and other != member.identity
    }
    members = list(candidates)
    while pairs:
        counts = Counter(identity for pair in pairs for identity in pair)
        max_count = max(counts.values())
        removed_identity = next(
            member.identity for member in reversed(members) if counts[member.identity] == max_count
        )
        members = [member for member in members if member.identity != removed_identity]
        pairs = {pair for pair in pairs if removed_identity not in pair}
    return members


def can_join(candidate: Member, group: Collection[Member]) -> bool:
    """Return True if no member of the group avoids the candidate and the candidate avoids none."""
    return not any(
        candidate.identity in member.avoids or member.identity in candidate.avoids
        for member in group
    )


def probes_stalls(identity: str, group: Generation) -> bool:
    """Return True if a member probes the lease of the next member when its workers stall.

    In a large group only some members do: etcd ends the other leases itself, up to half a second later.
    """
    interval = -(-len(group.members) // MAX_STALL_PROBERS)
    return group.ranks.get(identity, 1) % interval == 0


def next_training_member(
    identity: str, members: Mapping[str, Member], group: Generation
) -> str | None:
    """Return the next member by rank that still trains with the group, cyclically; None if there is none."""
    own_rank = group.ranks.get(identity)
    if own_rank is None:
        return None
    others = group.members[own_rank + 1 :] + group.members[:own_rank]
    return next((name for name in others if trains(members.get(name), group)), None)


def rank(
    candidates: list[Member], current: Generation | None, coordinators: Sequence[str] = ()
) -> list[Member]:
    """Return members by rank: members of the current generation in its order, for warm caches, then by registration.

    In a large run the coordinators come first, since only they can propose. Among them, members of the current
    generation come first, so that a coordinator whose groups fail is not the proposer.
    """
    return sorted(candidates, key=rank_key(current, coordinators))


def rank_key(
    current: Generation | None, coordinators: Sequence[str]
) -> Callable[[Member], tuple[bool, int, int, str]]:
    """Return the key by which `rank` sorts."""
    previous_ranks = current.ranks if current else {}

    def key(member: Member) -> tuple[bool, int, int, str]:
        name = member.identity
        return (
            name not in coordinators,
            previous_ranks.get(name, len(previous_ranks)),
            member.order,
            name,
        )

    return key
