"""How long a large group takes to form, and what it asks of etcd.

    python benchmarks/formation.py [--members 1000] [--watched 8] [--puts-per-second 5000] [--json]

A simulation in which the deciding is real: some members, rank 0 among them, are the very `Membership`
that an agent decides with, and their decisions take the time that they take on this machine. Etcd is
a list that takes so many changes a second, and everybody hears of each at once. The other members are
a crowd that says what a member says. Members are machines of their own, so their times overlap.
"""

import argparse
import bisect
import json
import statistics
import time
from dataclasses import dataclass, field, replace

from benchmarks.progress import shown
from everstep.elastic.generations import Generation, Member, Rules
from everstep.elastic.membership import Membership
from everstep.elastic.membership_events import (
    Action,
    Announce,
    Begin,
    Event,
    GenerationPut,
    MemberGone,
    MemberPut,
    Propose,
    Ready,
    Register,
    Registered,
    Snapshot,
)


@dataclass
class Store:
    """Etcd: what was changed, and when. Seconds are of the simulation."""

    interval: float  # between two changes
    changes: list[tuple[float, Event]] = field(default_factory=list)
    standing: dict[str, Member] = field(default_factory=dict)
    revision: int = 0
    free_at: float = 0.0
    agreed_at: int = 0
    requests: dict[str, int] = field(default_factory=dict)

    def count(self, kind: str) -> None:
        """Note a request."""
        self.requests[kind] = self.requests.get(kind, 0) + 1

    def put(self, member: Member, now: float) -> None:
        """Put a member's key."""
        self.count("put")
        stood = self.standing.get(member.identity)
        member = replace(member, order=stood.order if stood else self.revision + 1)
        self.standing[member.identity] = member
        self.change(MemberPut(member), now)

    def propose(self, proposal: Propose, now: float) -> None:
        """Agree on a generation, unless another was first."""
        self.count("transaction")
        if proposal.replaces == self.agreed_at:
            self.agreed_at = self.revision + 1
            generation = Generation(proposal.number, proposal.members, "store:1")
            self.change(GenerationPut(generation, self.agreed_at), now)

    def change(self, event: Event, now: float) -> None:
        """Something is other than before, from as soon as etcd comes to it."""
        self.revision += 1
        self.free_at = max(now, self.free_at) + self.interval
        bisect.insort(self.changes, (self.free_at, event), key=lambda change: change[0])


@dataclass
class Agent:
    """A member that really decides."""

    identity: str
    store: Store
    core: Membership
    now: float = 0.0
    heard: int = 0
    decisions: int = 0
    began: dict[int, float] = field(default_factory=dict)

    def decide(self, *events: Event) -> None:
        """Learn, decide, do; time passes by as much as deciding takes."""
        start = time.perf_counter()
        actions = self.core.handle_all(events, self.now)
        self.now += time.perf_counter() - start
        self.decisions += 1
        for action in actions:
            self._carry_out(action)

    def hear(self) -> bool:
        """Take in all that has changed until now, or else wait for the next change; whether there is one."""
        news = self.store.changes[self.heard :]
        if not news:
            return False
        self.now = max(self.now, news[0][0])
        come = [event for at, event in news if at <= self.now]
        self.heard += len(come)
        self.decide(*come)
        return True

    def _carry_out(self, action: Action) -> None:
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
    """What a member says of itself."""
    return Member(identity, identity, identity, after)


@dataclass(frozen=True, kw_only=True)
class Formed:
    """A group has formed.

    Attributes:
        seconds: until the last of the watched members began.
        decisions: of the busiest of them.
        requests: of etcd, by kind, of all members; without renewals and the two reads at a start.
    """

    seconds: float
    decisions: int
    requests: dict[str, int]


def run(count: int, watched: int, puts_per_second: float) -> dict[str, Formed]:
    """Form a group from nothing; then lose its rank 0 and let all others form the next."""
    store = Store(1 / puts_per_second)
    rules = Rules(min_members=1, max_members=count, settle_seconds=60.0, living=True)
    names = [f"node-{index:05}" for index in range(count)]
    agents = [Agent(name, store, Membership(rules)) for name in names[: watched + 1]]
    crowd = names[watched + 1 :]
    for agent in agents:
        agent.decide(Snapshot((), None, 0))
        agent.decide(Ready())
    for name in crowd:
        store.count("lease")
        store.put(member(name, 0), 0.0)
    first = settle(agents, 1)

    lost, *others = agents
    begun = max(agent.now for agent in agents)
    store.change(MemberGone(lost.identity), begun)
    for agent in others:
        agent.hear()
        agent.decide(Ready())
    for name in crowd:
        store.put(member(name, 1), begun)
    return {"from nothing": first, "after the loss of rank 0": settle(others, 2, begun)}


def settle(agents: list[Agent], number: int, begun: float = 0.0) -> Formed:
    """Let time pass until nothing is new, the agent that is furthest behind always first.

    Raises:
        AssertionError: a member is not in the group.
    """
    while any(agent.hear() for agent in sorted(agents, key=lambda agent: agent.now)):
        pass
    store = agents[0].store
    assert all(number in agent.began for agent in agents), "a member is not in the group"
    formed = Formed(
        seconds=max(agent.began[number] for agent in agents) - begun,
        decisions=max(agent.decisions for agent in agents),
        requests=dict(store.requests),
    )
    store.requests.clear()
    for agent in agents:
        agent.decisions = 0
    return formed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--members", type=int, default=1000, help="in the group (%(default)s)")
    parser.add_argument("--watched", type=int, default=8, help="that decide (%(default)s)")
    parser.add_argument(
        "--puts-per-second", type=float, default=5000.0, help="that etcd takes (%(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="repetitions (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    asked = parser.parse_args()
    rounds = [
        run(asked.members, asked.watched, asked.puts_per_second)
        for _ in shown(range(asked.rounds), "rounds", asked.rounds)
    ]
    if asked.json:
        print(json.dumps([{k: vars(v) for k, v in each.items()} for each in rounds], indent=2))
        return
    for name, formed in rounds[0].items():
        seconds = [each[name].seconds for each in rounds]
        requests = ", ".join(f"{n} x {kind}" for kind, n in formed.requests.items())
        print(
            f"{asked.members} members, {name}: {statistics.median(seconds):.2f} s"
            f" ({min(seconds):.2f} to {max(seconds):.2f}), {formed.decisions} decisions at most;"
            f" {requests}: {sum(formed.requests.values()) / asked.members:.1f} requests a member"
        )


if __name__ == "__main__":
    main()
