"""Membership under random schedules: an etcd in memory, agents that stall, die, leave and come back.

Every agent is a real `Membership`; only the shell around it is simulated. Messages to each agent stay in
etcd's order, as a watch delivers them, but each agent lags behind by its own, random amount. Time moves only
when the schedule says so.
"""

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from everstep.elastic.generations import Generation, Member, Rules
from everstep.elastic.membership import Membership
from everstep.elastic.membership_events import (
    Announce,
    Begin,
    Depart,
    Event,
    GenerationPut,
    LeaseLapsed,
    Leave,
    MemberGone,
    MemberPut,
    Propose,
    Reachable,
    Ready,
    Reclaim,
    Register,
    Registered,
    Regroup,
    Snapshot,
    Stop,
    Superseded,
    Tick,
    Unreachable,
    Withdraw,
)

TTL = 2.0
ASKING = (Register, Reclaim, Announce, Propose, Withdraw, Depart)
"""What takes an answer of etcd's."""


@dataclass
class Etcd:
    """The keys, their revision, and the agents that watch them."""

    revision: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    generation: Generation | None = None
    generation_revision: int = 0
    agreed: list[Generation] = field(default_factory=list)
    watchers: list["Agent"] = field(default_factory=list)
    away: bool = False
    committed: list[Any] = field(default_factory=list)

    def tell(self, event: Event) -> None:
        for watcher in self.watchers:
            watcher.inbox.append(event)

    def put(self, member: Member) -> None:
        self.revision += 1
        order = (
            self.members[member.identity].order
            if member.identity in self.members
            else self.revision
        )
        self.members[member.identity] = replace(member, order=order)
        self.tell(MemberPut(self.members[member.identity]))

    def remove(self, identity: str) -> None:
        self.revision += 1
        if self.members.pop(identity, None):
            self.tell(MemberGone(identity))

    def propose(self, generation: Generation, replaces: int) -> None:
        if replaces != self.generation_revision:
            return
        self.revision += 1
        self.generation, self.generation_revision = generation, self.revision
        self.agreed.append(generation)
        self.tell(GenerationPut(generation, self.revision))

    def snapshot(self) -> Snapshot:
        return Snapshot(tuple(self.members.values()), self.generation, self.generation_revision)


@dataclass
class Agent:
    """One node: its core, what it has not yet heard, and the worker it runs."""

    name: str
    etcd: Etcd
    core: Membership
    inbox: deque[Event] = field(default_factory=deque)
    renewed: float = 0.0
    lease_of: str = ""
    count: int = 0
    frozen: bool = False
    running: int = 0  # generation in which a worker runs here, 0 where none does
    asked_to_stop: bool = False
    regroup: bool = False
    gone: bool = False
    blocked: deque[object] = field(default_factory=deque)  # what waits for etcd to answer
    sees_outage: bool = False
    told_to_go: bool = False

    def handle(self, event: Event, now: float) -> None:
        self.handle_all([event], now)

    def handle_all(self, events: list[Event], now: float) -> None:
        if self.blocked:  # the thread that decides is in a call that etcd has not answered
            self.inbox.extend(events)
            return
        self.carry_out_all(self.core.handle_all(events, now))

    def carry_out_all(self, actions: Iterable[object]) -> None:
        for action in actions:
            if self.blocked or (self.etcd.away and isinstance(action, ASKING)):
                self.blocked.append(action)
            else:
                self.carry_out(action)

    def unblock(self) -> None:
        waiting, self.blocked = self.blocked, deque()
        self.carry_out_all(waiting)

    def carry_out(self, action: object) -> None:  # noqa: C901 - one case an action
        match action:
            case Register(after):
                self.count += 1
                self.lease_of = f"{self.name}.{self.count}"
                self.etcd.put(Member(self.lease_of, self.name, self.name, after))
                self.inbox.append(Registered(self.lease_of))
            case Reclaim(identity, after, leaving, revision):
                if revision == self.etcd.generation_revision:
                    self.lease_of = identity
                    self.etcd.put(Member(identity, self.name, self.name, after, leaving))
                    self.inbox.append(Registered(identity))
                else:
                    self.inbox.append(Superseded())
            case Announce(after, leaving):
                if self.lease_of in self.etcd.members:
                    self.etcd.put(Member(self.lease_of, self.name, self.name, after, leaving))
                else:
                    self.inbox.append(LeaseLapsed())
            case Propose(number, members, replaces):
                self.etcd.propose(Generation(number, members, self.name), replaces)
            case Begin(generation, _):
                self.running, self.asked_to_stop, self.regroup = generation.number, False, False
            case Stop():
                self.asked_to_stop = True
            case Regroup():
                self.regroup = True
            case Withdraw():
                self.etcd.remove(self.lease_of)
            case Depart():
                self.gone = True
                self.etcd.remove(self.lease_of)

    def worker_ended(self, now: float) -> None:
        self.running, self.asked_to_stop, self.regroup = 0, False, False
        self.handle(Ready(), now)


class World:
    """A schedule's state, and the moves that it may make."""

    def __init__(self, seed: int, nodes: int, min_members: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.etcd = Etcd()
        self.rules = Rules(min_members=min_members, max_members=nodes, settle_seconds=3.0)
        self.agents: list[Agent] = []
        self.committed: dict[int, int] = {}  # step -> generation that committed it
        self.step = 0
        self.spawned = 0
        for _ in range(nodes):
            self.spawn()

    def spawn(self) -> None:
        self.spawned += 1
        agent = Agent(f"n{self.spawned}", self.etcd, Membership(self.rules), renewed=self.now)
        self.agents.append(agent)
        self.etcd.watchers.append(agent)
        agent.inbox.append(self.etcd.snapshot())
        agent.handle(Ready(), self.now)

    def kill(self, agent: Agent) -> None:
        """Gone without a word: its key stays until its lease lapses."""
        agent.gone = True

    def alive(self) -> list[Agent]:
        return [agent for agent in self.agents if not agent.gone]

    def awake(self) -> list[Agent]:
        return [agent for agent in self.alive() if not agent.frozen]

    def go_away(self) -> None:
        """An outage of etcd: it answers nobody any more."""
        self.etcd.away = True

    def come_back(self) -> None:
        """It answers again, and first of all ends the leases that nobody renewed."""
        if not self.etcd.away:
            return
        self.etcd.away = False
        for agent in self.agents:
            if agent.lease_of in self.etcd.members and self.now - agent.renewed > TTL:
                self.etcd.remove(agent.lease_of)
        for agent in self.alive():
            agent.unblock()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        if self.etcd.away:
            for agent in self.awake():
                if not agent.sees_outage and self.now - agent.renewed > TTL / 2:
                    agent.sees_outage = True
                    agent.inbox.append(Unreachable())
            return
        for agent in self.agents:
            if not agent.gone and not agent.frozen:
                agent.renewed = self.now
                if agent.sees_outage:
                    agent.sees_outage = False
                    agent.inbox.append(Reachable())
                if agent.core.identity and agent.core.identity not in self.etcd.members:
                    agent.inbox.append(LeaseLapsed())
            elif self.now - agent.renewed > TTL and agent.lease_of in self.etcd.members:
                self.etcd.remove(agent.lease_of)

    def deliver(self, agent: Agent, count: int) -> None:
        """News reaches an agent: at once where it was busy meanwhile, or piece by piece."""
        count = min(count, len(agent.inbox))
        if not agent.blocked and self.random.random() < 0.5:
            news = [agent.inbox.popleft() for _ in range(count)]
            agent.handle_all([*news, Tick()], self.now)
            return
        for _ in range(count):
            if agent.blocked:
                return
            agent.handle(agent.inbox.popleft(), self.now)
        if not agent.blocked:
            agent.handle(Tick(), self.now)

    def train(self) -> None:
        """One step of the current group, if every worker of it runs and none has been told to stop."""
        current = self.etcd.generation
        if current is None:
            return
        group = [a for a in self.alive() if a.running == current.number]
        if len(group) != len(current.members) or any(a.frozen or a.asked_to_stop for a in group):
            return
        self.step += 1
        self.commit(current.number)
        if any(agent.regroup for agent in group):
            for agent in group:
                agent.worker_ended(self.now)

    def commit(self, generation: int) -> None:
        """What the fence allows: etcd's own word, asked for at the commit."""
        if self.etcd.away:
            return  # a commit waits
        if self.etcd.generation and self.etcd.generation.number == generation:
            self.committed[self.step] = generation

    def stop_workers(self) -> None:
        for agent in self.awake():
            if agent.running and agent.asked_to_stop:
                agent.worker_ended(self.now)

    def move(self) -> None:
        """One random move."""
        agents = self.awake()
        what = self.random.random()
        agent = self.random.choice(agents) if agents else None
        if agent and what < 0.55:
            self.deliver(agent, self.random.randint(1, 4))
        elif what < 0.70:
            self.train()
        elif what < 0.80:
            self.stop_workers()
        elif what < 0.93:
            self.advance(self.random.choice([0.1, 0.5, 1.0]))
        elif agent:
            self.disturb(agent)

    def disturb(self, agent: Agent) -> None:
        match self.random.randint(0, 7):
            case 0:
                self.kill(agent)
            case 1:
                agent.told_to_go = True
                agent.handle(Leave(), self.now)
            case 2:
                agent.frozen = True
            case 3:
                for other in self.alive():
                    other.frozen = False
            case 4 if agent.running:
                agent.worker_ended(self.now)  # the worker process crashed
            case 5:
                self.go_away()
            case 6:
                self.come_back()
            case _ if len(self.alive()) < self.rules.max_members:
                self.spawn()

    def calm(self) -> None:
        """No more faults: etcd answers, and all that live thaw and hear everything."""
        self.come_back()
        for agent in self.alive():
            agent.frozen = False
        for _ in range(60):
            self.advance(0.5)
            self.stop_workers()
            for agent in self.awake():
                self.deliver(agent, len(agent.inbox))
            self.train()
