"""Members of a run, the generations that they form, and in what order they stand. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Member:
    """One node's agent as its key in etcd tells it.

    Attributes:
        identity: of one registration; an agent whose lease lapsed comes back under a new one.
        node: name of the machine or pod, for people.
        address: where the others reach it.
        after: the member waits for a generation with a number above this.
        leaving: its node has been told to go; it is not proposed again.
        order: etcd's revision at which it registered; the earlier, the lower its rank.
    """

    identity: str
    node: str
    address: str
    after: int = 0
    leaving: bool = False
    order: int = 0

    def to_json(self) -> str:
        """The value of its key; identity and order are the key's own."""
        return json.dumps(
            {
                "node": self.node,
                "address": self.address,
                "after": self.after,
                "leaving": self.leaving,
            }
        )

    @staticmethod
    def from_json(identity: str, value: str, order: int) -> "Member":
        """Read a member's key back."""
        read = json.loads(value)
        return Member(
            identity, read["node"], read["address"], read["after"], read["leaving"], order
        )


@dataclass(frozen=True)
class Generation:
    """A group that trains together. `members` are identities in rank order; `store` is rank 0's host:port."""

    number: int
    members: tuple[str, ...]
    store: str = ""

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Rank by identity."""
        return {identity: place for place, identity in enumerate(self.members)}

    def to_json(self) -> str:
        """The value of the generation's key."""
        return json.dumps({"number": self.number, "members": self.members, "store": self.store})

    @staticmethod
    def from_json(value: str) -> "Generation":
        """Read the generation's key back."""
        read = json.loads(value)
        return Generation(read["number"], tuple(read["members"]), read["store"])


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Limits of a group.

    Attributes:
        min_members: fewer do not train.
        max_members: more wait as spares.
        settle_seconds: how long the first formation waits for a full group once it could begin.
        orderly_seconds: how long a peer that has left its group in order, after the step that all
            agreed on, may be ahead of this agent's workers before they are stopped. Where stopping
            ends a worker's process this is 0, since a process that settles is left alone anyway.
        living: workers keep their state between two generations, so an agent that is told to leave
            there takes part in one more, in which the state is handed on or saved.
        doubt_seconds: how long after an outage of etcd the missing keys of others prove nothing.
            Longer than it takes every agent to find etcd again and to put its key back.
    """

    min_members: int = 1
    max_members: int = 1
    settle_seconds: float = 8.0
    orderly_seconds: float = 0.0
    living: bool = False
    doubt_seconds: float = 3.0


def trains(member: Member | None, group: Generation) -> bool:
    """Whether a live member has not stopped training with a group."""
    return member is not None and member.after < group.number


def waiting(members: Mapping[str, Member], current: Generation | None) -> list[Member]:
    """Members that a new generation may take: they have no worker running and do not leave."""
    return [
        member
        for member in members.values()
        if not member.leaving
        and not (current and member.identity in current.places and trains(member, current))
    ]


def busy(members: Mapping[str, Member], current: Generation | None) -> list[Member]:
    """Live members of the current generation that have not stopped, leaving ones included."""
    if current is None:
        return []
    return [m for m in members.values() if m.identity in current.places and trains(m, current)]


def neighbour(identity: str, members: Mapping[str, Member], group: Generation) -> str | None:
    """The next in rank after a member that still trains with its group, after the last one the first."""
    place = group.places.get(identity)
    if place is None:
        return None
    others = group.members[place + 1 :] + group.members[:place]
    return next((name for name in others if trains(members.get(name), group)), None)


def rank(candidates: list[Member], current: Generation | None) -> list[Member]:
    """In rank order: those who trained before keep theirs (their caches are warm), then by registration."""
    before = current.places if current else {}
    return sorted(
        candidates, key=lambda m: (before.get(m.identity, len(before)), m.order, m.identity)
    )
