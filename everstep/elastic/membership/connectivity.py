"""The members that an agent avoids: it could not reach them, or its groups with them failed. Pure.

Agents agree through etcd, but their workers train over their own connections. A node that reaches
etcd and not its peers would join, let the group fail and join again, endlessly. So each agent probes
its peers, and publishes the members to avoid in its own key; a generation never contains a
member together with a member that it avoids. Other causes, such as a wrong network interface, show only as
generations that fail without a step although all their members are alive. Then the joiners are avoided, for a
time that doubles with each attempt.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

MAX_GENERATIONS_WITHOUT_STEP = 10  # consecutive generations without a step before a node gives up
BLAME_AFTER = 2  # generations without a step before a joiner is avoided although it can be reached
ROTATE_AFTER = 3
"""Generations without a step before members are left out in turn, if no group has worked yet."""
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
FIRST_AVOID_SECONDS = 5.0
MAX_AVOID_SECONDS = 600.0


def give_up_reason(others: Sequence[str]) -> str:
    """Return the reason why a node gives up after too many generations without a step with these nodes."""
    return (
        f"{MAX_GENERATIONS_WITHOUT_STEP} consecutive generations ended without a step, the last one with "
        f"{', '.join(others) or 'no other node'}, although all their nodes are alive: the workers cannot exchange data"
    )


def cut_off_reason(unreachable_nodes: Sequence[str]) -> str:
    """Return the reason why a joiner that did not reach these nodes does not register."""
    return (
        "this node reaches etcd, but not these training nodes, or they do not reach this one: "
        f"{', '.join(unreachable_nodes)}"
    )


@dataclass
class _AvoidedMember:
    """The time at which an avoided member is probed again, and whether it could be reached nevertheless."""

    retry_at: float
    reachable: bool


@dataclass
class Connectivity:
    """One agent's record of the peers that it can train with.

    Attributes:
        generations_without_step: consecutive generations that failed without a step although all members were alive.
        proven_members: identities of the last group that took a step with this agent.
    """

    generations_without_step: int = 0
    proven_members: frozenset[str] = frozenset()
    _avoided: dict[str, _AvoidedMember] = field(default_factory=dict)
    _failed_group: set[str] = field(default_factory=set)  # its members that were not probed since
    _avoid_counts: dict[str, int] = field(default_factory=dict)  # how often each member was avoided

    def record_step(self, group: Collection[str]) -> None:
        """Record that this agent's group has taken a step."""
        self.generations_without_step, self.proven_members = 0, frozenset(group)
        for identity in self.proven_members:
            self._avoided.pop(identity, None)
            self._avoid_counts.pop(identity, None)

    def record_failure(self, group: Collection[str]) -> None:
        """Record that a generation of these members ended without a step although all of them are alive."""
        self.generations_without_step += 1
        self._failed_group = set(group)

    def record_probe(
        self, identity: str, targets: Collection[str], unreachable: Collection[str], now: float
    ) -> None:
        """Record which of the probed members could not be reached.

        Args:
            identity: identity of this agent.
            targets: the members that were probed.
            unreachable: members that could not be reached.
            now: current time in seconds.
        """
        for target in targets:
            avoided = self._avoided.get(target)
            if target in unreachable:
                self._avoid(target, now, reachable=False)
            elif avoided and (avoided.retry_at <= now or not avoided.reachable):
                del self._avoided[target]
        if (
            self.generations_without_step >= BLAME_AFTER
            and not unreachable
            and identity in self.proven_members
        ):
            # Not after the probe that ends the avoidance: first a group with the member has to fail again.
            for joiner in self._failed_group.intersection(targets) - self.proven_members:
                self._avoid(joiner, now, reachable=True)
        self._failed_group.difference_update(targets)

    def _avoid(self, identity: str, now: float, *, reachable: bool) -> None:
        count = self._avoid_counts[identity] = self._avoid_counts.get(identity, 0) + 1
        seconds = min(FIRST_AVOID_SECONDS * 2 ** min(count - 1, 20), MAX_AVOID_SECONDS)
        self._avoided[identity] = _AvoidedMember(now + seconds, reachable)

    def avoided(self, members: Collection[str]) -> tuple[str, ...]:
        """Return the members to avoid, sorted."""
        if not self._avoided:
            return ()
        return tuple(sorted(name for name in self._avoided if name in members))

    def due_members(self, members: Collection[str], now: float) -> tuple[str, ...]:
        """Return the avoided members that are due to be probed again."""
        return tuple(name for name in self.avoided(members) if self._avoided[name].retry_at <= now)

    def next_due(self, members: Collection[str]) -> Iterable[float]:
        """Return when avoided members may be probed again."""
        return [self._avoided[name].retry_at for name in self.avoided(members)]

    def backoff_seconds(self) -> float:
        """Return how long to wait before the next proposal."""
        if self.generations_without_step < BLAME_AFTER:
            return 0.0
        doublings = min(self.generations_without_step - BLAME_AFTER, 20)
        return float(min(FIRST_BACKOFF_SECONDS * 2**doublings, MAX_BACKOFF_SECONDS))


@dataclass
class Admission:
    """The condition for a joiner to register: it must reach at least half of the training members that it probes.

    Attributes:
        refusals: consecutive attempts that reached too few members.
        retry_at: the earliest time of the next attempt, in seconds.
        is_admitted: whether the last attempt succeeded and the joiner has not registered since.
    """

    refusals: int = 0
    retry_at: float = float("-inf")
    is_admitted: bool = False

    def judge(self, training: Collection[str], unreachable: Collection[str], now: float) -> bool:
        """Return True if the joiner may register now; otherwise, set the time of the next attempt."""
        missed_count = sum(name in unreachable for name in training)
        self.is_admitted = 2 * missed_count <= len(training)
        if self.is_admitted:
            self.refusals = 0
            return True
        seconds = min(FIRST_BACKOFF_SECONDS * 2 ** min(self.refusals, 20), MAX_BACKOFF_SECONDS)
        self.refusals += 1
        self.retry_at = now + seconds
        return False
