"""The agents of a large run that watch all members' keys, and their instructions to the others. Pure.

If each of N agents watched all members, a regroup would cost etcd N puts times N watchers. If a run allows
more than `full_view_members` members, only a few *coordinators* watch them. Only coordinators propose
generations. To end a generation, they put an instruction, which all agents watch. A coordinator has its own
key under its lease, so the other agents observe when the key is removed and claim the role in turn, by rank.
No coordinator is special: each writes the same instruction, in a transaction that succeeds once.
"""

import zlib
from dataclasses import dataclass, field

from everstep.elastic.membership.events import Action, Coordinate, Instruct, Instruction, Resign
from everstep.elastic.membership.generations import Generation, GroupLimits, Member

CLAIM_SPREAD_SECONDS = 2.0  # the claims of all agents are spread over this time
UNFIT_SECONDS = 60.0
"""Time without a claim after a coordinator has resigned because no group may include it."""


def is_large(limits: GroupLimits) -> bool:
    """Return True if only coordinators watch all members."""
    return limits.max_members > limits.full_view_members


@dataclass
class Coordinators:
    """The coordinators that one agent knows, and its own claim.

    Attributes:
        members: the coordinators, by identity; `order` is the revision of the claim.
    """

    members: dict[str, Member] = field(default_factory=dict)
    _claimed_identity: str = ""  # identity of a claim that is not observed yet
    _resigned_identity: str = ""
    _missing_since: float | None = None
    _unfit_until: float = float("-inf")

    def ranked_identities(self, limits: GroupLimits) -> list[str]:
        """Return the identities of the coordinators in the order of their claims; surplus ones resign."""
        by_claim = sorted(self.members.values(), key=lambda member: (member.order, member.identity))
        return [member.identity for member in by_claim[: limits.coordinators]]

    def forget_claims(self) -> None:
        """Record that this agent's keys were removed."""
        self._claimed_identity = self._resigned_identity = ""

    def claim(
        self, identity: str, current: Generation | None, limits: GroupLimits, now: float
    ) -> list[Action]:
        """Return the claim of this agent if coordinators are missing, or its resignation if there are too many."""
        ranked = self.ranked_identities(limits)
        if identity in self.members:
            self._claimed_identity = ""
            return [] if identity in ranked else self._resign(identity)
        self._resigned_identity = ""
        if len(ranked) >= limits.coordinators or now < self._unfit_until:
            self._missing_since = None
            return []
        if self._missing_since is None:
            self._missing_since = now
        if now < self._missing_since + _turn_seconds(identity, current) or self._claimed_identity:
            return []
        self._claimed_identity = identity
        return [Coordinate()]

    def next_due(self, identity: str, current: Generation | None) -> list[float]:
        """Return when this agent may claim the role."""
        if self._missing_since is None:
            return [self._unfit_until]
        return [self._missing_since + _turn_seconds(identity, current)]

    def give_up_role(self, identity: str, now: float) -> list[Action]:
        """Resign as a coordinator that cannot be in a group, so that another one proposes."""
        self._unfit_until = now + UNFIT_SECONDS
        return self._resign(identity)

    def _resign(self, identity: str) -> list[Action]:
        if self._resigned_identity == identity:
            return []
        self._resigned_identity = identity
        return [Resign()]


def _turn_seconds(identity: str, current: Generation | None) -> float:
    """Return how long an agent waits before it claims the role: by rank, or evenly spread if it has no rank."""
    if current and identity in current.ranks:
        return CLAIM_SPREAD_SECONDS * current.ranks[identity] / len(current.members)
    return CLAIM_SPREAD_SECONDS * (zlib.crc32(identity.encode()) % 1000) / 1000


@dataclass
class Instructions:
    """The newest instruction of each kind, and the instructions that this coordinator has requested."""

    _newest_by_kind: dict[str, Instruction] = field(default_factory=dict)
    _requested_keys: set[tuple[str, int, int, int]] = field(default_factory=set)

    def adopt(self, instructions: tuple[Instruction, ...]) -> None:
        """Replace all instructions with the instructions of a snapshot."""
        self._newest_by_kind = {instruction.kind: instruction for instruction in instructions}
        self._requested_keys.clear()

    def note(self, instruction: Instruction) -> None:
        """Record an instruction."""
        self._newest_by_kind[instruction.kind] = instruction

    def reason(self, kind: str, number: int) -> str | None:
        """Return the reason for the instruction to a generation; None if there is none."""
        newest = self._newest_by_kind.get(kind)
        return newest.reason if newest and newest.number == number else None

    def request(self, kind: str, number: int, reason: str, revision: int) -> list[Action]:
        """Return the action that puts an instruction, unless it exists or was already requested at the same revisions.

        Args:
            kind: `stop` or `regroup`.
            number: number of the generation that must end.
            reason: reason for its end.
            revision: revision of the last change of the generation's key.
        """
        if self.reason(kind, number) is not None:
            return []
        newest = self._newest_by_kind.get(kind)
        replaces = newest.revision if newest else 0
        key = (kind, number, revision, replaces)
        if key in self._requested_keys:
            return []
        self._requested_keys = {
            key,
            *(other for other in self._requested_keys if other[1] == number),
        }
        return [Instruct(kind, number, reason, revision, replaces)]
