"""Schedules of faults that are partial, late, duplicated or reordered.

Like `recovery_simulation`, with additional faults: an agent loses etcd while its workers reach their peers, two
nodes lose each other in one direction, a worker hangs, a machine vanishes between any two actions of its
agent, a key of etcd cannot be read, messages of etcd are repeated and local responses overtake them. A commit is
not immediate: its request reaches etcd late, or never.
"""

import random
from collections.abc import Callable

from everstep.elastic.membership.events import Withdrawn
from everstep.elastic.recovery.state_machine import Phase, StepProgress
from tests.everstep.elastic.membership.simulation import Agent
from tests.everstep.elastic.recovery.recovery_simulation import (
    CommitRequest,
    History,
    LiveAgent,
    LiveWorld,
    Operation,
    Worker,
)

COPY_FAULTS = 0.3  # chance of a crash at each step of a copy
KILL_SECONDS = 20.0  # time until an agent withdraws because of an unkillable worker


class PartialFaultWorld(LiveWorld):
    """A schedule with partial faults."""

    def __init__(self, seed: int, nodes: int, min_members: int, coordinators: int = 0) -> None:
        self.requests: list[CommitRequest] = []
        self.hang_times: dict[int, float] = {}  # time at which a worker began to hang, by id
        self.faultless = False
        self.interrupted_copies = 0  # copies that were not complete
        # States that were written before their commits were requested.
        self.staged_states: dict[StepProgress, History] = {}
        super().__init__(seed, nodes, min_members, coordinators)

    def spawn(self) -> None:
        super().spawn()
        self.agents[-1].disorder = random.Random(self.random.random())

    # --- a commit in two parts ---

    def maybe_commit(self, worker: Worker) -> None:
        super().maybe_commit(worker)
        if self.requests and self.random.random() < 0.3:
            self.carry_out_commit(self.random.choice(self.requests))

    def request_commit(self, request: CommitRequest) -> None:
        self.staged_states[request.progress] = request.state
        self.requests.append(request)

    def is_writing(self, worker: Worker) -> bool:
        return super().is_writing(worker) or any(r.writer is worker for r in self.requests)

    def carry_out_commit(self, request: CommitRequest) -> None:
        """Commit in one transaction, if the generation is current and no later step is committed."""
        if self.etcd.unavailable or self.etcd.unreadable or request.writer.agent.cut_off:
            return
        self.requests.remove(request)
        current, committed = self.etcd.generation, self.etcd.committed
        if not current or current.number != request.number:
            return
        if committed and committed[-1][0] >= request.progress:
            return
        if request.progress not in self.staged_states:
            self.violations.append("a step was committed before its state was written")
        committed.append((request.progress, request.state))
        self.announce_commit(self.alive())

    # --- faults ---

    def work(self, worker: Worker) -> None:
        if id(worker) in self.hang_times:
            return
        super().work(worker)
        is_copying = worker.core.phase is Phase.COPYING and not self.faultless
        if is_copying and self.random.random() < COPY_FAULTS:
            self.interrupt_copy(worker)

    def interrupt_copy(self, worker: Worker) -> None:
        """Crash another worker of a group that copies: torn states must never be offered."""
        other_agents = [
            agent
            for agent in self.awake()
            if agent.worker is not worker and agent.worker.core.generation == worker.core.generation
        ]
        if other_agents:
            self.interrupted_copies += worker.state is None
            self.crash(self.random.choice(other_agents))

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for agent in self.awake():
            hung_at = self.hang_times.get(id(agent.worker))
            is_overdue = hung_at is not None and self.now - hung_at > KILL_SECONDS
            if is_overdue and agent.running_generation and agent.stop_requested:
                # Its agent has killed the worker without effect.
                agent.running_generation = 0
                agent.handle(Withdrawn(), self.now)

    def advance_operation(self, worker: Worker, operation: Operation) -> None:
        group = [a for a in self.alive() if a.worker.core.generation == worker.core.generation]
        if self.all_connected(group):
            super().advance_operation(worker, operation)
        elif self.now - operation.began > 30 or self.random.random() < 0.02:
            self.give_up_operation(worker)

    def inject_fault(self, agent: Agent) -> None:
        assert isinstance(agent, LiveAgent)
        faults: list[Callable[[LiveAgent], None]] = [
            self.lose_etcd,
            self.lose_peer,
            self.hang,
            self.crash_between_actions,
            self.damage_key,
            self.heal,
            self.heal,
        ]
        if self.random.random() < 0.5:
            super().inject_fault(agent)
        else:
            self.random.choice(faults)(agent)

    def lose_etcd(self, agent: LiveAgent) -> None:
        self.cut_off(agent)

    def lose_peer(self, agent: LiveAgent) -> None:
        """Lose packets in one direction, which is enough to break a connection."""
        peer = self.random.choice(self.alive())
        if peer is not agent:
            self.etcd.cut_links.add((agent.name, peer.name))

    def hang(self, agent: LiveAgent) -> None:
        self.hang_times.setdefault(id(agent.worker), self.now)

    def crash_between_actions(self, agent: LiveAgent) -> None:
        agent.crash_in = self.random.randint(0, 3)

    def damage_key(self, _: LiveAgent) -> None:
        self.etcd.damage(self.random.choice(["generation", "committed"]))

    def heal(self, agent: LiveAgent) -> None:
        """End most partial faults of an agent; a hung worker does not continue, but is replaced."""
        if self.etcd.unreadable:
            self.repair_keys()
        self.reconnect(agent)
        agent.crash_in = None
        self.etcd.cut_links = {pair for pair in self.etcd.cut_links if agent.name not in pair}
        if self.hang_times.pop(id(agent.worker), None) is not None:
            self.crash(agent)

    def end_faults(self) -> None:
        for agent in self.alive():
            self.heal(agent)
        self.faultless = True
        super().end_faults()
        self.requests = [
            r for r in self.requests if r.writer.agent.has_departed or not r.writer.agent.gone
        ]
