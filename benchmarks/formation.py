"""Measure how long a large group takes to form, and how many requests it makes to etcd.

    python benchmarks/formation.py [--members 1000] [--watched 8] [--puts-per-second 5000] [--rounds 5] [--json]

A simulation with real decisions, in which each member watches all others, as in runs of up to 64 nodes
(`benchmarks.scale` measures larger groups). Some members, including rank 0, use the `Membership` class of the
agent, and their decisions take the time measured on this machine. etcd is simulated by a list that accepts a
fixed number of changes per second and notifies all members at the same time. The other members only write their
keys. Every member has its own machine, so their times overlap.
"""

import argparse
import bisect
import json
import statistics
import time
from dataclasses import dataclass, field, replace

from benchmarks.progress import track
from everstep.elastic.membership.events import (
    Action,
    Announce,
    Begin,
    Event,
    GenerationPut,
    MemberPut,
    MemberRemoved,
    MembershipSnapshot,
    Propose,
    Ready,
    Register,
    Registered,
)
from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.membership.state_machine import Membership


@dataclass
class Store:
    """Simulated etcd: the changes and their times in simulated seconds."""

    interval: float  # seconds between two changes
    changes: list[tuple[float, Event]] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    revision: int = 0
    free_at: float = 0.0  # time from which it accepts the next change
    generation_revision: int = 0  # revision of the current generation; 0 before the first
    requests: dict[str, int] = field(default_factory=dict)  # number by kind

    def count(self, kind: str) -> None:
        """Count a request."""
        self.requests[kind] = self.requests.get(kind, 0) + 1

    def put(self, member: Member, now: float) -> None:
        """Write a member's key."""
        self.count("put")
        previous = self.members.get(member.identity)
        member = replace(member, order=previous.order if previous else self.revision + 1)
        self.members[member.identity] = member
        self.change(MemberPut(member), now)

    def propose(self, proposal: Propose, now: float) -> None:
        """Write the proposed generation unless another proposal was first."""
        self.count("transaction")
        if proposal.replaces == self.generation_revision:
            self.generation_revision = self.revision + 1
            generation = Generation(proposal.number, proposal.members, "store:1")
            self.change(GenerationPut(generation, self.generation_revision), now)

    def change(self, event: Event, now: float) -> None:
        """Record a change at the time when etcd has capacity for it."""
        self.revision += 1
        self.free_at = max(now, self.free_at) + self.interval
        bisect.insort(self.changes, (self.free_at, event), key=lambda change: change[0])


@dataclass
class RealMember:
    """A member that decides with the agent's code."""

    identity: str
    store: Store
    membership: Membership
    now: float = 0.0  # simulated seconds
    received: int = 0  # changes of the store that it has applied
    decisions: int = 0
    began: dict[int, float] = field(default_factory=dict)  # generation -> time at which it began

    def decide(self, *events: Event) -> None:
        """Decide about the events and act; advance the time by the duration of the decision."""
        start = time.perf_counter()
        actions = self.membership.handle_all(events, self.now)
        self.now += time.perf_counter() - start
        self.decisions += 1
        for action in actions:
            self._execute(action)

    def receive(self) -> bool:
        """Apply all changes until now, or wait for the next change; return False if there is no change."""
        pending = self.store.changes[self.received :]
        if not pending:
            return False
        self.now = max(self.now, pending[0][0])
        events = [event for due, event in pending if due <= self.now]
        self.received += len(events)
        self.decide(*events)
        return True

    def _execute(self, action: Action) -> None:
        match action:
            case Register(after):
                self.store.count("lease")
                self.store.put(member(self.identity, after), self.now)
                self.decide(Registered(self.identity))
            case Announce(after):
                self.store.put(member(self.identity, after), self.now)
            case Propose():
                self.store.propose(action, self.now)
            case Begin(generation, _):
                self.began[generation.number] = self.now


def member(identity: str, after: int) -> Member:
    """Return the record that a member publishes."""
    return Member(identity, identity, identity, after)


@dataclass(frozen=True, kw_only=True)
class FormationResult:
    """The cost of forming one group.

    Attributes:
        seconds: time until the last of the watched members began.
        decisions: maximum number of decisions of a watched member.
        requests: number of requests to etcd by kind, of all members; without renewals and the two reads
            at a start.
    """

    seconds: float
    decisions: int
    requests: dict[str, int]


def run(count: int, watched: int, puts_per_second: float) -> dict[str, FormationResult]:
    """Form a group; then remove its rank 0 and let the others form the next group."""
    store = Store(1 / puts_per_second)
    limits = GroupLimits(
        min_members=1, max_members=count, join_window_seconds=60.0, full_view_members=count
    )
    names = [f"node-{index:05}" for index in range(count)]
    agents = [RealMember(name, store, Membership(limits)) for name in names[: watched + 1]]
    other_members = names[watched + 1 :]
    for agent in agents:
        agent.decide(MembershipSnapshot((), None, 0))
        agent.decide(Ready())
    for name in other_members:
        store.count("lease")
        store.put(member(name, 0), 0.0)
    first = settle(agents, 1)

    lost_agent, *other_agents = agents
    started_at = max(agent.now for agent in agents)
    store.change(MemberRemoved(lost_agent.identity), started_at)
    for agent in other_agents:
        agent.receive()
        agent.decide(Ready())
    for name in other_members:
        store.put(member(name, 1), started_at)
    return {"at the start": first, "after the loss of rank 0": settle(other_agents, 2, started_at)}


def settle(agents: list[RealMember], number: int, started_at: float = 0.0) -> FormationResult:
    """Advance the simulation until no change is pending; the agent furthest behind always goes first.

    Raises:
        AssertionError: a member is not in the group.
    """
    while any(agent.receive() for agent in sorted(agents, key=lambda agent: agent.now)):
        pass
    store = agents[0].store
    assert all(number in agent.began for agent in agents), "a member is not in the group"
    result = FormationResult(
        seconds=max(agent.began[number] for agent in agents) - started_at,
        decisions=max(agent.decisions for agent in agents),
        requests=dict(store.requests),
    )
    store.requests.clear()
    for agent in agents:
        agent.decisions = 0
    return result


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--members", type=int, default=1000, help="members of the group (%(default)s)"
    )
    parser.add_argument(
        "--watched",
        type=int,
        default=8,
        help="members with real decisions, in addition to rank 0 (%(default)s)",
    )
    parser.add_argument(
        "--puts-per-second",
        type=float,
        default=5000.0,
        help="changes per second that etcd accepts (%(default)s)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="repetitions (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args()
    rounds = [
        run(options.members, options.watched, options.puts_per_second)
        for _ in track(range(options.rounds), "rounds", options.rounds)
    ]
    if options.json:
        print(
            json.dumps(
                [{name: vars(result) for name, result in results.items()} for results in rounds],
                indent=2,
            )
        )
        return
    for name, result in rounds[0].items():
        seconds = [results[name].seconds for results in rounds]
        requests = ", ".join(f"{count} x {kind}" for kind, count in result.requests.items())
        print(
            f"{options.members} members, {name}: {statistics.median(seconds):.2f} s"
            f" ({min(seconds):.2f} to {max(seconds):.2f}), {result.decisions} decisions at most;"
            f" {requests}: {sum(result.requests.values()) / options.members:.1f} requests per member"
        )


if __name__ == "__main__":
    main()
