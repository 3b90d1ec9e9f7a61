"""Schedules in which members are suspected, rightly or wrongly.

In addition to the faults of `partial_faults`, every agent has a real `Suspicion`. Heartbeats are lost or late, or pass
one way only; a process freezes and thaws just before or after its peers fence it; a fence reaches etcd
late, perhaps after the requesting process itself was frozen.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from everstep.elastic.membership.events import GenerationPut, Resumed
from everstep.elastic.membership.suspicion import HeartbeatMessage, ObservedGroup, Suspicion
from tests.everstep.elastic.membership.simulation import Agent
from tests.everstep.elastic.recovery.partial_faults import PartialFaultWorld
from tests.everstep.elastic.recovery.recovery_simulation import LiveAgent, Worker

BEAT_SECONDS = 0.1


@dataclass(frozen=True)
class FenceRequest:
    """A fence on its way to etcd.

    Attributes:
        revision: revision of the generation's key that it names.
        registrations: the fencer and the suspects, with the revisions at which they registered.
        suspects: members to fence.
    """

    revision: int
    registrations: tuple[tuple[str, int], ...]
    suspects: tuple[str, ...]


@dataclass
class FailureDetector:
    """One agent's heartbeats.

    Attributes:
        core: state machine of its suspicions.
        packets: packets that have reached its machine, each with the time from which it can be read.
        request: the fence that it carries out.
        trained: generation and time of its worker's last training step.
    """

    core: Suspicion = field(default_factory=Suspicion)
    packets: list[tuple[float, HeartbeatMessage]] = field(default_factory=list)
    request: FenceRequest | None = None
    trained: tuple[int, float] = (0, 0.0)


class SuspicionWorld(PartialFaultWorld):
    """A schedule with heartbeats.

    Attributes:
        fences: identities that were fenced, each with whether its agent was alive.
    """

    def __init__(self, seed: int, nodes: int, min_members: int, coordinators: int = 0) -> None:
        self.detectors: dict[str, FailureDetector] = {}
        # Pairs of nodes; no heartbeat goes from the first to the second.
        self.muted_links: set[tuple[str, str]] = set()
        self.lossy_nodes: set[str] = set()  # nodes most of whose heartbeats are lost or late
        self.fences: list[tuple[str, bool]] = []
        super().__init__(seed, nodes, min_members, coordinators)

    def spawn(self) -> None:
        super().spawn()
        self.detectors[self.agents[-1].name] = FailureDetector()

    # --- heartbeats ---

    def apply(self, worker: Worker) -> None:
        super().apply(worker)
        self.detectors[worker.agent.name].trained = worker.core.generation, self.now

    def advance(self, seconds: float) -> None:
        for _ in range(round(seconds / BEAT_SECONDS)):
            super().advance(BEAT_SECONDS)
            for agent in self.awake():
                self.beat(agent)

    def beat(self, agent: LiveAgent) -> None:
        """Run one heartbeat step of an agent: process its packets, update its suspicions and send heartbeats."""
        detector = self.detectors[agent.name]
        group = observed_group(agent)
        detector.core.follow(group)
        arrived_messages = [message for arrival, message in detector.packets if arrival <= self.now]
        detector.packets = [
            (arrival, message) for arrival, message in detector.packets if arrival > self.now
        ]
        number, completed_at = detector.trained
        generation = agent.core.current
        trained_at = completed_at if generation and generation.number == number else None
        for sending in detector.core.step(arrived_messages, self.now, trained_at):
            self.send(agent, sending.recipient, sending.message)
        for name in detector.core.take_resumed():
            agent.receive_locally(Resumed(name))
        suspects = detector.core.to_fence()
        if suspects and group and detector.request is None:
            members = agent.core.members
            names = [name for name in (group.identity, *suspects) if name in members]
            orders = tuple((name, members[name].order) for name in names)
            detector.request = FenceRequest(agent.core.view.revision, orders, suspects)
        if detector.request and self.random.random() < 0.7:
            self.carry_out_fence(agent, detector)

    def send(self, sender: LiveAgent, identity: str, message: HeartbeatMessage) -> None:
        for receiver in self.alive():
            if receiver.lease_identity == identity and self.passes(sender.name, receiver.name):
                delay = (
                    self.random.choice([0.0, 0.3, 0.7]) if sender.name in self.lossy_nodes else 0.0
                )
                self.detectors[receiver.name].packets.append((self.now + delay, message))

    def passes(self, sender: str, receiver: str) -> bool:
        link = sender, receiver
        if link in self.muted_links or link in self.etcd.cut_links:
            return False
        return sender not in self.lossy_nodes or self.random.random() < 0.4

    def carry_out_fence(self, agent: LiveAgent, detector: FailureDetector) -> None:
        """Fence the suspects in one transaction, which names the generation and all registrations."""
        request = detector.request
        if request is None or agent.unreachable():
            return
        detector.request = None
        etcd = self.etcd
        orders = {name: member.order for name, member in etcd.members.items()}
        if etcd.generation is None or etcd.generation_revision != request.revision:
            return
        if any(orders.get(name) != order for name, order in request.registrations):
            return
        live_identities = {node.lease_identity for node in self.alive()}
        etcd.revision += 1
        for name in request.suspects:
            self.fences.append((name, name in live_identities))
            etcd.remove(name)
        fenced_members = (*etcd.generation.fenced, *request.suspects)
        etcd.generation = replace(etcd.generation, fenced=fenced_members)
        etcd.generation_revision = etcd.revision
        etcd.notify(GenerationPut(etcd.generation, etcd.revision))

    # --- faults ---

    def move(self) -> None:
        """Make one random move; time passes more often than in other schedules, so that silences matter."""
        if self.random.random() < 0.15:
            self.advance(BEAT_SECONDS * self.random.randint(1, 3))
        else:
            super().move()

    def inject_fault(self, agent: Agent) -> None:
        assert isinstance(agent, LiveAgent)
        faults: list[Callable[[LiveAgent], None]] = [
            self.mute,
            self.lose_heartbeats,
            self.freeze_for_a_moment,
            self.freeze_for_a_moment,
            self.vanish,
        ]
        if self.random.random() < 0.5:
            super().inject_fault(agent)
        else:
            self.random.choice(faults)(agent)

    def mute(self, agent: LiveAgent) -> None:
        """Lose heartbeats to one other node, or to all."""
        other_names = [peer.name for peer in self.alive() if peer is not agent]
        chosen_names = other_names if self.random.random() < 0.3 else other_names[:1]
        self.muted_links |= {(agent.name, peer) for peer in chosen_names}

    def lose_heartbeats(self, agent: LiveAgent) -> None:
        self.lossy_nodes.add(agent.name)

    def freeze_for_a_moment(self, agent: LiveAgent) -> None:
        """Freeze a node until about the moment at which the others fence it."""
        if agent.frozen:
            return
        agent.frozen = True
        self.let_others_react()
        agent.frozen = False

    def vanish(self, agent: LiveAgent) -> None:
        """Lose a node without notice, while the others react."""
        self.kill(agent)
        self.let_others_react()

    def let_others_react(self) -> None:
        for _ in range(self.random.randint(3, 9)):
            self.advance(BEAT_SECONDS)
            for peer in self.awake():
                if self.random.random() < 0.7:
                    self.deliver(peer, self.random.randint(1, 6))
                self.work(peer.worker)

    def heal(self, agent: LiveAgent) -> None:
        super().heal(agent)
        self.lossy_nodes.discard(agent.name)
        self.muted_links = {pair for pair in self.muted_links if agent.name not in pair}


def observed_group(agent: LiveAgent) -> ObservedGroup | None:
    """Return the group that an agent observes, from its own view."""
    core = agent.core
    identity = core.heartbeat_identity
    if identity is None or core.current is None or identity not in core.current.ranks:
        return None
    nodes = {name: member.node for name, member in core.members.items()}
    return ObservedGroup(identity, core.current.members, nodes)
