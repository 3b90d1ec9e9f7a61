"""Membership under random schedules: an etcd in memory, agents that stall, die, leave and return.

Every agent is a real `Membership`; only the shell around it is simulated. Messages to each agent stay in
etcd's order, as a watch delivers them, but each agent reads them with its own random delay. Time passes only
when the schedule advances it.
"""

import itertools
import random
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from everstep.elastic.membership.events import (
    Announce,
    Begin,
    Coordinate,
    CoordinatorPut,
    CoordinatorRemoved,
    Depart,
    Event,
    Evict,
    GenerationPut,
    GiveUp,
    Instruct,
    Instruction,
    LeaseLapsed,
    Leave,
    MemberPut,
    MemberRemoved,
    MembershipSnapshot,
    Probe,
    Probed,
    Progressed,
    Propose,
    Reachable,
    Ready,
    Reclaim,
    Register,
    Registered,
    Regroup,
    Resign,
    Stop,
    Superseded,
    Tick,
    Unreachable,
    UnreadableKeys,
    Withdraw,
)
from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.membership.state_machine import Membership

TTL = 2.0
ETCD_REQUESTS = (
    Register,
    Reclaim,
    Announce,
    Propose,
    Withdraw,
    Depart,
    Evict,
    Coordinate,
    Resign,
    Instruct,
)
"""Actions that wait for a response from etcd."""


@dataclass
class Etcd:
    """The keys, their revision, and the agents that watch them."""

    revision: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    generation: Generation | None = None
    generation_revision: int = 0
    agreed_generations: list[Generation] = field(default_factory=list)
    watchers: list["Agent"] = field(default_factory=list)
    unavailable: bool = False
    committed: list[Any] = field(default_factory=list)
    coordinators: dict[str, Member] = field(default_factory=dict)
    instructions: dict[str, Instruction] = field(default_factory=dict)
    # Requests that arrive a second time.
    repeated_requests: list[Instruct] = field(default_factory=list)
    unreadable: UnreadableKeys = field(default_factory=UnreadableKeys)
    # Pairs of nodes; no packet goes from the first to the second.
    cut_links: set[tuple[str, str]] = field(default_factory=set)

    def connected(self, first: str, second: str) -> bool:
        """Return True if two nodes reach each other, in both directions."""
        return (first, second) not in self.cut_links and (second, first) not in self.cut_links

    def notify(self, event: Event) -> None:
        concerns_member = isinstance(event, MemberPut | MemberRemoved)
        for watcher in self.watchers:
            is_reached = not watcher.gone and not watcher.cut_off
            if is_reached and (watcher.watches_all or not concerns_member):
                watcher.receive(event)

    def put(self, member: Member) -> None:
        self.revision += 1
        order = (
            self.members[member.identity].order
            if member.identity in self.members
            else self.revision
        )
        self.members[member.identity] = replace(member, order=order)
        self.notify(MemberPut(self.members[member.identity]))

    def remove(self, identity: str) -> None:
        self.revision += 1
        if self.members.pop(identity, None):
            self.notify(MemberRemoved(identity))
        self.remove_coordinator(identity)  # under the same lease

    def put_coordinator(self, member: Member) -> None:
        if member.identity not in self.members:
            return  # its lease has ended
        self.revision += 1
        previous = self.coordinators.get(member.identity)
        order = previous.order if previous else self.revision
        self.coordinators[member.identity] = replace(member, order=order)
        self.notify(CoordinatorPut(self.coordinators[member.identity]))

    def remove_coordinator(self, identity: str) -> None:
        if self.coordinators.pop(identity, None):
            self.revision += 1
            self.notify(CoordinatorRemoved(identity))

    def instruct(self, request: Instruct) -> None:
        newest = self.instructions.get(request.kind)
        if request.revision != self.generation_revision:
            return
        if request.replaces != (newest.revision if newest else 0):
            return
        self.revision += 1
        instruction = Instruction(request.kind, request.number, request.reason, self.revision)
        self.instructions[request.kind] = instruction
        self.notify(instruction)

    def propose(self, generation: Generation, replaces: int) -> None:
        if replaces != self.generation_revision:
            return
        self.revision += 1
        self.generation, self.generation_revision = generation, self.revision
        self.unreadable = replace(self.unreadable, generation=False)
        self.agreed_generations.append(generation)
        self.notify(GenerationPut(generation, self.revision))

    def snapshot(
        self, *, complete: bool = True, store_was_replaced: bool = False
    ) -> MembershipSnapshot:
        return MembershipSnapshot(
            tuple(self.members.values()) if complete else (),
            None if self.unreadable.generation else self.generation,
            self.generation_revision,
            complete,
            tuple(self.coordinators.values()),
            tuple(self.instructions.values()),
            self.unreadable,
            store_was_replaced,
        )

    def damage(self, name: str) -> None:
        """Write a value that no agent can read to `generation` or `committed`."""
        self.revision += 1
        if name == "generation":
            self.generation_revision = self.revision
        self.unreadable = replace(self.unreadable, **{name: True})
        self.notify(self.unreadable)


@dataclass
class Agent:
    """One node: its state machine, the messages that it has not handled yet, and its worker."""

    name: str
    etcd: Etcd
    core: Membership
    inbox: deque[Event] = field(default_factory=deque)
    renewed_at: float = 0.0
    lease_identity: str = ""
    registrations: int = 0
    frozen: bool = False
    running_generation: int = 0  # generation in which its worker runs; 0: none runs
    newest_begun: int = 0  # the newest generation that its workers were assigned to
    stop_requested: bool = False
    regroup_requested: bool = False
    gone: bool = False
    blocked_actions: deque[object] = field(default_factory=deque)  # actions that wait for etcd
    sees_outage: bool = False
    leave_requested: bool = False
    give_up_reason: str = ""
    cut_off: bool = False  # from etcd
    crash_in: int | None = None  # actions until this agent's machine is gone
    # If set, messages are duplicated, and local ones overtake others.
    disorder: random.Random | None = None
    stuck: bool = False  # its lease is renewed, but it ignores all events
    watches_all: bool = True
    read_revision: int = 0  # revision of the last reading of the keys

    def handle(self, event: Event, now: float) -> None:
        self.handle_all([event], now)

    def read_keys(self) -> MembershipSnapshot:
        """Read the keys; as in `RunKeys`, etcd was replaced if its revision is lower than at the last reading."""
        store_was_replaced = self.etcd.revision < self.read_revision
        self.read_revision = self.etcd.revision
        return self.etcd.snapshot(complete=self.watches_all, store_was_replaced=store_was_replaced)

    def adjust_watch(self) -> None:
        """Read the keys again if the members are to be watched from now on, or no longer."""
        if self.watches_all != self.core.watches_all and not self.unreachable():
            self.watches_all = self.core.watches_all
            self.inbox.append(self.read_keys())

    def receive(self, event: Event) -> None:
        """Receive a message from etcd; a resumed watch may repeat the last one."""
        self.inbox.append(event)
        if self.disorder and self.disorder.random() < 0.1:
            self.inbox.append(event)

    def receive_locally(self, event: Event) -> None:
        """Receive a response, which may arrive before earlier messages of the watch."""
        position = self.disorder.randint(0, len(self.inbox)) if self.disorder else len(self.inbox)
        self.inbox.insert(position, event)

    def handle_all(self, events: list[Event], now: float) -> None:
        if self.stuck:
            return
        if self.blocked_actions:  # the deciding thread waits for a response from etcd
            self.inbox.extend(events)
            return
        self.carry_out_all(self.core.handle_all(events, now))
        self.adjust_watch()

    def carry_out_all(self, actions: Iterable[object]) -> None:
        for action in actions:
            if self.crash_in is not None:
                self.crash_in -= 1
                self.gone = self.gone or self.crash_in < 0
            if self.gone:
                return
            if self.blocked_actions or (self.unreachable() and isinstance(action, ETCD_REQUESTS)):
                self.blocked_actions.append(action)
            else:
                self.carry_out(action)

    def unreachable(self) -> bool:
        """Return True if etcd does not respond to this agent."""
        return self.etcd.unavailable or self.cut_off

    def unblock(self) -> None:
        actions, self.blocked_actions = self.blocked_actions, deque()
        self.carry_out_all(actions)

    def carry_out(self, action: object) -> None:  # noqa: C901 - one case per action
        match action:
            case Register(after, avoids):
                self.registrations += 1
                self.lease_identity = f"{self.name}.{self.registrations}"
                self.etcd.put(self.member(after, avoids=avoids))
                self.receive_locally(Registered(self.lease_identity))
            case Reclaim(identity, after, leaving, revision, avoids):
                if revision == self.etcd.generation_revision:
                    self.lease_identity = identity
                    self.etcd.put(self.member(after, leaving=leaving, avoids=avoids))
                    self.receive_locally(Registered(identity))
                else:
                    self.receive_locally(Superseded())
            case Announce(after, leaving, avoids):
                if self.lease_identity in self.etcd.members:
                    self.etcd.put(self.member(after, leaving=leaving, avoids=avoids))
                else:
                    self.inbox.append(LeaseLapsed())
            case Propose(number, members, replaces, endpoints, orders):
                generation = Generation(
                    number, members, self.name, endpoints=endpoints, orders=orders
                )
                self.etcd.propose(generation, replaces)
            case Coordinate():
                if self.lease_identity in self.etcd.members:
                    self.etcd.put_coordinator(self.member(0))
                else:
                    self.inbox.append(LeaseLapsed())
            case Resign():
                self.etcd.remove_coordinator(self.lease_identity)
            case Instruct():
                self.etcd.instruct(action)
                if self.disorder and self.disorder.random() < 0.3:
                    self.etcd.repeated_requests.append(action)
            case Begin(generation, _):
                assert generation.number > self.newest_begun, (
                    f"{self.name} begins generation {generation.number} after {self.newest_begun}: "
                    "a worker would ignore it and be killed"
                )
                self.newest_begun = generation.number
                self.running_generation, self.stop_requested, self.regroup_requested = (
                    generation.number,
                    False,
                    False,
                )
            case Stop():
                self.stop_requested = True
            case Regroup():
                self.regroup_requested = True
            case Withdraw():
                self.etcd.remove(self.lease_identity)
            case Depart():
                self.gone = True
                self.etcd.remove(self.lease_identity)
            case Probe(targets):
                unreachable_names = {
                    name for name, node in targets if not self.etcd.connected(self.name, node)
                }
                targets_probed = frozenset(name for name, _ in targets)
                self.receive_locally(Probed(targets_probed, frozenset(unreachable_names)))
            case Evict(identity):
                self.etcd.remove(identity)
            case GiveUp(reason):
                self.gone, self.give_up_reason = True, reason
                self.etcd.remove(self.lease_identity)

    def member(self, after: int, *, leaving: bool = False, avoids: tuple[str, ...] = ()) -> Member:
        return Member(
            self.lease_identity,
            self.name,
            self.name,
            after,
            leaving,
            endpoint=self.name,
            avoids=avoids,
        )

    def worker_ended(self, now: float) -> None:
        self.running_generation, self.stop_requested, self.regroup_requested = 0, False, False
        self.handle(Ready(), now)


class World:
    """The simulated nodes and their etcd, and the moves of which a random schedule consists."""

    def __init__(self, seed: int, nodes: int, min_members: int, coordinators: int = 0) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.etcd = Etcd()
        self.limits = GroupLimits(
            min_members=min_members,
            max_members=nodes,
            join_window_seconds=3.0,
            graceful_leave_lag_seconds=0.0,
            full_view_members=0 if coordinators else nodes,
            coordinators=coordinators,
        )
        self.agents: list[Agent] = []
        self.committed: dict[int, int] = {}  # step -> generation that committed it
        self.step = 0
        self.spawn_count = 0
        # Nodes whose workers reach no other, although their agents do.
        self.misconfigured_nodes: set[str] = set()
        for _ in range(nodes):
            self.spawn()

    def spawn(self) -> None:
        self.spawn_count += 1
        agent = Agent(
            f"n{self.spawn_count}", self.etcd, Membership(self.limits), renewed_at=self.now
        )
        self.agents.append(agent)
        self.etcd.watchers.append(agent)
        agent.watches_all = agent.core.watches_all
        agent.handle(agent.read_keys(), self.now)
        agent.handle(Ready(), self.now)

    def kill(self, agent: Agent) -> None:
        """End an agent without notice: its key stays until the lease lapses."""
        agent.gone = True

    def alive(self) -> Sequence[Agent]:
        return [agent for agent in self.agents if not agent.gone]

    def awake(self) -> Sequence[Agent]:
        return [agent for agent in self.agents if not agent.gone and not agent.frozen]

    def begin_outage(self) -> None:
        """Start an outage of etcd, in which no request gets a response."""
        self.etcd.unavailable = True

    def end_outage(self) -> None:
        """End the outage; etcd first removes the leases that were not renewed."""
        if not self.etcd.unavailable:
            return
        self.etcd.unavailable = False
        for agent in self.agents:
            if agent.lease_identity in self.etcd.members and self.now - agent.renewed_at > TTL:
                self.etcd.remove(agent.lease_identity)
        for agent in self.alive():
            if not agent.cut_off:
                agent.unblock()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        repeated_requests, self.etcd.repeated_requests = self.etcd.repeated_requests, []
        for request in repeated_requests:
            self.etcd.instruct(request)
        for agent in self.agents:
            self.renew(agent)
        if not self.etcd.unavailable:
            lease_identities = {agent.lease_identity for agent in self.agents}
            # Keys of an earlier registration.
            for identity in set(self.etcd.members) - lease_identities:
                self.etcd.remove(identity)

    def renew(self, agent: Agent) -> None:
        """Renew an agent's lease, or let it lapse."""
        awake = not agent.gone and not agent.frozen
        reaches_etcd = not (self.etcd.unavailable or agent.cut_off)
        if awake and reaches_etcd:
            agent.renewed_at = self.now
            if agent.sees_outage:
                agent.sees_outage = False
                agent.inbox.append(Reachable())
            if agent.core.identity and agent.core.identity not in self.etcd.members:
                agent.inbox.append(LeaseLapsed())
        elif awake and not agent.sees_outage and self.now - agent.renewed_at > TTL / 2:
            agent.sees_outage = True
            agent.inbox.append(Unreachable())
        if (awake and reaches_etcd) or self.etcd.unavailable:
            return
        if self.now - agent.renewed_at > TTL and agent.lease_identity in self.etcd.members:
            self.etcd.remove(agent.lease_identity)

    def cut_off(self, agent: Agent) -> None:
        """Cut an agent off from etcd; its workers still reach the others."""
        agent.cut_off = True

    def reconnect(self, agent: Agent) -> None:
        """Reconnect an agent to etcd; it reads the keys again."""
        if agent.cut_off:
            agent.cut_off = False
            agent.watches_all = agent.core.watches_all
            agent.inbox.append(agent.read_keys())
            agent.unblock()

    def replace_etcd(self, backup: "Etcd | None") -> None:
        """Restore etcd from a backup, or wipe it."""
        etcd, old_etcd = self.etcd, backup or Etcd()
        etcd.revision, etcd.members = old_etcd.revision, dict(old_etcd.members)
        etcd.generation, etcd.generation_revision = (
            old_etcd.generation,
            old_etcd.generation_revision,
        )
        etcd.coordinators, etcd.instructions = (
            dict(old_etcd.coordinators),
            dict(old_etcd.instructions),
        )
        for agent in self.agents:
            if not agent.cut_off:
                agent.receive(agent.read_keys())

    def repair_keys(self) -> None:
        """Write the former values of damaged keys again, or instead a generation without members."""
        etcd = self.etcd
        is_unknown, etcd.unreadable = etcd.unreadable.generation, UnreadableKeys()
        if is_unknown:
            if etcd.generation is None or self.random.random() < 0.5:
                numbers = [generation.number for generation in etcd.agreed_generations]
                if etcd.generation:
                    numbers.append(etcd.generation.number)
                etcd.generation = Generation(1 + max(numbers, default=0), ())
            etcd.revision += 1
            etcd.generation_revision = etcd.revision
            etcd.notify(GenerationPut(etcd.generation, etcd.revision))
        etcd.notify(etcd.unreadable)

    def backup(self) -> Etcd:
        """Return a backup of etcd."""
        etcd = self.etcd
        copy = Etcd(etcd.revision, dict(etcd.members), etcd.generation, etcd.generation_revision)
        copy.coordinators, copy.instructions = dict(etcd.coordinators), dict(etcd.instructions)
        return copy

    def deliver(self, agent: Agent, count: int) -> None:
        """Deliver messages to an agent: all together, as after a busy time, or one by one."""
        agent.adjust_watch()
        count = min(count, len(agent.inbox))
        if not agent.blocked_actions and self.random.random() < 0.5:
            messages = [agent.inbox.popleft() for _ in range(count)]
            agent.handle_all([*messages, Tick()], self.now)
            return
        for _ in range(count):
            if agent.blocked_actions:
                return
            agent.handle(agent.inbox.popleft(), self.now)
        if not agent.blocked_actions:
            agent.handle(Tick(), self.now)

    def train(self) -> None:
        """Take a step of each complete group, even of a group that etcd has lost."""
        for generation, group in self.running_groups().items():
            is_complete = len(group) == len(generation.members)
            if is_complete and not any(a.frozen or a.stop_requested for a in group):
                self.take_step(generation, group)

    def running_groups(self) -> dict[Generation, list[Agent]]:
        """Return the agents whose workers run, by generation."""
        groups: dict[Generation, list[Agent]] = {}
        for agent in self.alive():
            generation = agent.core.own_generation
            if generation and generation.number == agent.running_generation:
                if generation.fenced:
                    generation = replace(generation, fenced=())
                groups.setdefault(generation, []).append(agent)
        return groups

    def take_step(self, generation: Generation, group: Sequence[Agent]) -> None:
        """Take a step; the workers end instead if they cannot exchange data."""
        if not self.all_connected(group):
            for agent in group:
                agent.worker_ended(self.now)
            return
        self.step += 1
        self.commit(generation.number)
        for agent in group:
            agent.handle(Progressed(generation.number), self.now)
        if any(agent.regroup_requested for agent in group):
            for agent in group:
                agent.worker_ended(self.now)

    def all_connected(self, group: Sequence[Agent]) -> bool:
        """Return True if the workers of these nodes can all exchange data."""
        names = [agent.name for agent in group]
        if len(names) > 1 and self.misconfigured_nodes.intersection(names):
            return False
        return not self.etcd.cut_links or all(
            self.etcd.connected(*pair) for pair in itertools.combinations(names, 2)
        )

    def commit(self, generation: int) -> None:
        """Commit a step if the fence of etcd allows it."""
        if self.etcd.unavailable or self.etcd.unreadable:
            return  # a commit waits
        if self.etcd.generation and self.etcd.generation.number == generation:
            self.committed[self.step] = generation

    def stop_workers(self) -> None:
        for agent in self.awake():
            if agent.running_generation and agent.stop_requested:
                agent.worker_ended(self.now)

    def move(self) -> None:
        """Make one random move: deliver messages, train, stop workers, let time pass, or inject a fault."""
        agents = self.awake()
        draw = self.random.random()
        agent = self.random.choice(agents) if agents else None
        if agent and draw < 0.55:
            self.deliver(agent, self.random.randint(1, 4))
        elif draw < 0.70:
            self.train()
        elif draw < 0.80:
            self.stop_workers()
        elif draw < 0.93:
            self.advance(self.random.choice([0.1, 0.5, 1.0]))
        elif agent:
            self.inject_fault(agent)

    def inject_fault(self, agent: Agent) -> None:
        match self.random.randint(0, 7):
            case 0:
                self.kill(agent)
            case 1:
                agent.leave_requested = True
                agent.handle(Leave(), self.now)
            case 2:
                agent.frozen = True
            case 3:
                for peer in self.alive():
                    peer.frozen = False
            case 4 if agent.running_generation:
                agent.worker_ended(self.now)  # the worker process crashed
            case 5:
                self.begin_outage()
            case 6:
                self.end_outage()
            case _ if len(self.alive()) < self.limits.max_members:
                self.spawn()

    def end_faults(self) -> None:
        """End outages, damaged keys, cut connections and freezes, then run for 30 s."""
        self.end_outage()
        if self.etcd.unreadable:
            self.repair_keys()
        self.etcd.cut_links.clear()
        for agent in self.alive():
            agent.frozen, agent.crash_in = False, None
            self.reconnect(agent)
        self.run(30)

    def run(self, seconds: float) -> None:
        """Continue without further faults: each agent receives all messages every half second."""
        end_at = self.now + seconds
        while self.now < end_at:
            self.advance(0.5)
            self.stop_workers()
            for agent in self.awake():
                self.deliver(agent, len(agent.inbox))
            self.train()
