"""Workers and their agents under random schedules: real `Membership` and `Recovery`, the rest simulated.

A worker's state is a history: the steps that it contains, each with the generation that applied it. As with real
collectives, no member gets a result before all have contributed; then each member gets it, or fails to get it,
independently of the others. A member that left makes the others fail; a frozen one makes them wait for their agent.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from everstep.elastic.data_order.leftover import Span, merge_spans, remaining_spans, split_share
from everstep.elastic.membership.events import (
    Begin,
    Depart,
    Leave,
    Progressed,
    Ready,
    Regroup,
    Stop,
    Withdrawn,
)
from everstep.elastic.membership.state_machine import Membership
from everstep.elastic.recovery.state_machine import (
    Apply,
    Assigned,
    Committed,
    Compare,
    Compared,
    Confirm,
    Confirmed,
    Connect,
    Connected,
    Copied,
    Copy,
    EpochEnded,
    Event,
    GroupLost,
    LeaveGroup,
    Leavers,
    Phase,
    Recovery,
    RegroupAgreed,
    Restore,
    Restored,
    RollBack,
    StateReport,
    StepProgress,
    Summed,
    Train,
    WarmedUp,
    Written,
)
from everstep.elastic.recovery.state_machine import (
    Ready as WorkerReady,
)
from tests.everstep.elastic.membership.simulation import Agent, World

DETACHED_SAVE_SECONDS = 2.0  # as in `live_worker`
COLLECTIVE_SECONDS = 60.0  # timeout of a collective; 600 s in reality
UNITS = 6  # units of a step's global batch
EPOCH_STEPS = 3
# Generation that applied a step; in `ledger_simulation` also the number and digest of the samples.
AppliedStep = int | tuple[int, int, int]
History = tuple[tuple[int, AppliedStep], ...]  # (step, generation that applied it)


@dataclass
class Operation:
    """One collective of one generation.

    Attributes:
        kind: connect, compare, copy, sum, or evaluate at the end of an epoch.
        contributions: payload of each worker that takes part, by rank.
        began: time of the first contribution in seconds.
    """

    kind: str
    contributions: dict[int, Any] = field(default_factory=dict)
    began: float = 0.0


@dataclass
class Worker:
    """A worker process: its agent, its state machine, its state, and the collective that it is in."""

    agent: "LiveAgent"
    core: Recovery = field(default_factory=Recovery)
    state: History | None = ()  # None: torn
    inbox: deque[Event] = field(default_factory=deque)
    operation: Operation | None = None
    count: int = 0  # collectives begun in this generation
    computed_units: tuple[Span, ...] = ()  # spans of the step in flight that it has computed
    group_units: tuple[Span, ...] = ()  # spans that the group had computed before this generation
    regroup_in: int = 0  # the generation that a member votes to end
    leaves: bool = False  # whether its node leaves
    saves: bool = False  # whether it saves its state because workers leave
    writes: bool = False  # whether its report to the agent waits for its writes
    ready_at: float = 0.0  # time from which it waits for a generation
    detached_progress: StepProgress | None = (
        None  # progress of the state that it saved outside a group
    )
    evaluated_step: int = (
        0  # step after which the callbacks at the end of an epoch ran last; part of the state
    )
    snapshot: tuple[int, StepProgress, History] | None = None
    write_chance: float = 0.6  # chance that its writer completes at a move: some disks are slow


@dataclass(frozen=True)
class CommitRequest:
    """A commit that a writer has requested of its agent, or that is on its way to etcd.

    Attributes:
        writer: the worker.
        number: generation that the commit names.
        progress: progress of the written state.
        state: the state.
    """

    writer: Worker
    number: int
    progress: StepProgress
    state: History


class LiveAgent(Agent):
    """A node whose worker survives changes of the group.

    Attributes:
        worker: its worker process.
        has_departed: whether the node has left gracefully; it still completes its writes.
    """

    worker: Worker
    has_departed = False

    def worker_ended(self, now: float) -> None:
        """Do nothing: a live worker ends by `LiveWorld.crash`."""

    def carry_out(self, action: object) -> None:
        super().carry_out(action)
        worker = self.worker
        match action:
            case Begin(generation, rank):
                committed = self.etcd.committed[-1][0] if self.etcd.committed else StepProgress()
                size = len(generation.members)
                worker.inbox.append(Assigned(generation.number, rank, size, committed))
            case Stop():
                worker.inbox.append(GroupLost("reported by the agent"))
            case Regroup():
                worker.regroup_in = self.running_generation
            case Depart():
                self.has_departed = True


class LiveWorld(World):
    """The state of a schedule whose workers survive changes of the group.

    Attributes:
        operations: collectives by generation and by their index in it.
        violations: invariants that were violated.
        favored_agent: agent that most moves advance, so that it is ahead of its peers.
    """

    def __init__(self, seed: int, nodes: int, min_members: int, coordinators: int = 0) -> None:
        self.operations: dict[tuple[int, int], Operation] = {}
        self.violations: list[str] = []
        self.favored_agent: LiveAgent | None = None
        super().__init__(seed, nodes, min_members, coordinators)

    def spawn(self) -> None:
        self.spawn_count += 1
        limits = replace(self.limits, graceful_leave_lag_seconds=1.0)
        agent = LiveAgent(
            f"n{self.spawn_count}", self.etcd, Membership(limits), renewed_at=self.now
        )
        self.agents.append(agent)
        self.etcd.watchers.append(agent)
        agent.worker = Worker(agent)
        agent.watches_all = agent.core.watches_all
        agent.handle(self.etcd.snapshot(complete=agent.watches_all), self.now)
        self.start_worker(agent)

    def start_worker(self, agent: LiveAgent) -> None:
        agent.worker = Worker(agent, write_chance=self.random.choice([0.6, 0.05]))
        self.act(agent.worker, agent.worker.core.handle(WarmedUp()))

    # --- actions of a worker ---

    def act(self, worker: Worker, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case WorkerReady(may_be_only_copy, writes):
                    worker.agent.running_generation = 0
                    worker.writes, worker.ready_at = writes, self.now
                    if not writes:
                        worker.agent.handle(Ready(may_be_only_copy), self.now)
                case Apply():
                    self.apply(worker)
                    self.save_before_regroup(worker)
                case RollBack():
                    self.roll_back(worker)
                case LeaveGroup():
                    worker.operation = None
                case _:
                    self.act_in_group(worker, action)

    def act_in_group(self, worker: Worker, action: object) -> None:
        match action:
            case Connect():
                worker.count = 0
                self.begin(worker, "connect", None)
            case Compare(report):
                self.begin(worker, "compare", self.report(worker, report))
            case Restore():
                worker.state = self.etcd.committed[-1][1] if self.etcd.committed else ()
                worker.computed_units, worker.evaluated_step = (), 0
                worker.inbox.append(Restored(len(worker.state)))
            case Copy(plan):
                if plan.unequal_ranks:
                    self.violations.append("states of the same progress are unequal")
                if plan.missing_tensors.get(worker.core.rank):
                    worker.state = None
                self.begin(worker, "copy", (plan, worker.state, worker.evaluated_step))
            case Confirm(leavers):
                self.begin(worker, "confirm", leavers)
            case Train() if self.ends_epoch(worker):
                self.begin(worker, "evaluate", self.regroup_votes(worker))
            case Train():
                worker.computed_units = merge_spans([*worker.computed_units, *self.share(worker)])
                self.begin(worker, "sum", (self.regroup_votes(worker), worker.computed_units))

    def regroup_votes(self, worker: Worker) -> tuple[bool, bool]:
        """Return a worker's votes: to regroup, and that its node leaves."""
        return worker.regroup_in == worker.core.generation, worker.leaves

    def report(self, worker: Worker, report: StateReport) -> StateReport:
        if worker.state is None and report.progress.agreed_generation:
            self.violations.append("a torn state was offered")
        # Not the hash of None, which is an address before Python 3.12: a seed must give one schedule.
        digest = hash((worker.state, worker.evaluated_step)) if worker.state is not None else 0
        return StateReport(report.progress, report.committed, (digest,), worker.computed_units)

    def ends_epoch(self, worker: Worker) -> bool:
        """Return True if the callbacks at the end of an epoch are due before the next step."""
        step = len(worker.state or ())
        return step > worker.evaluated_step and step % EPOCH_STEPS == 0

    def units(self, worker: Worker) -> int:
        """Return the number of units of the step in flight."""
        del worker
        return UNITS

    def share(self, worker: Worker) -> tuple[Span, ...]:
        """Return the spans of the step in flight that this worker computes."""
        missing = remaining_spans(self.units(worker), worker.group_units)
        return split_share(missing, worker.core.rank, worker.core.world_size)

    def roll_back(self, worker: Worker) -> None:
        """Roll back the step in flight; keep all, some or none of its results."""
        draw = self.random.random()
        if draw < 0.2:
            worker.computed_units = ()
        elif draw < 0.4:  # only the spans from before this generation, and one unit more
            own_spans = self.share(worker)
            units = self.units(worker)
            earlier_spans = remaining_spans(
                units, [*remaining_spans(units, worker.computed_units), *own_spans]
            )
            worker.computed_units = merge_spans(
                [*earlier_spans, *((first, first + 1) for first, _ in own_spans[:1])]
            )

    def apply(self, worker: Worker) -> None:
        assert worker.state is not None, "a step was applied to a torn state"
        worker.computed_units, worker.group_units = (), ()
        worker.state = (*worker.state, (len(worker.state) + 1, worker.core.generation))
        worker.agent.handle(Progressed(worker.core.generation), self.now)

    def save_before_regroup(self, worker: Worker) -> None:
        """Start a checkpoint on rank 0 if workers leave."""
        if worker.saves and worker.core.rank == 0:
            self.save(worker)
        worker.saves = False

    def save(self, worker: Worker) -> None:
        assert worker.state is not None, "a torn state was saved"
        worker.snapshot = (worker.core.generation, worker.core.progress, worker.state)

    def begin(self, worker: Worker, kind: str, payload: object) -> None:
        key = (worker.core.generation, worker.count)
        operation = self.operations.setdefault(key, Operation(kind, began=self.now))
        if operation.kind != kind:
            self.violations.append(f"{key}: one member began {kind}, another one {operation.kind}")
        if kind == "sum":
            payload = (payload, worker.state)
        operation.contributions[worker.core.rank] = payload
        worker.operation, worker.count = operation, worker.count + 1

    def alive(self) -> list[LiveAgent]:
        return [agent for agent in self.agents if not agent.gone and isinstance(agent, LiveAgent)]

    def awake(self) -> list[LiveAgent]:
        return [
            agent
            for agent in self.agents
            if not agent.gone and not agent.frozen and isinstance(agent, LiveAgent)
        ]

    def started_agents(self) -> list[LiveAgent]:
        """Return all agents that ever started, including those that are gone."""
        return [agent for agent in self.agents if isinstance(agent, LiveAgent)]

    # --- moves ---

    def work(self, worker: Worker) -> None:
        """Handle one event of a worker, or advance its collective, if possible."""
        if worker.inbox and not isinstance(worker.inbox[0], Assigned):
            self.act(worker, worker.core.handle(worker.inbox.popleft()))
        elif worker.operation:
            self.advance_operation(worker, worker.operation)
        elif worker.inbox:
            self.act(worker, worker.core.handle(worker.inbox.popleft()))
        else:
            self.save_detached(worker)
        self.maybe_commit(worker)

    def save_detached(self, worker: Worker) -> None:
        """Start a checkpoint if the node leaves and no group takes the worker's state."""
        core = worker.core
        is_unsaved = core.may_be_only_copy and core.progress != worker.detached_progress
        waits_long = self.now - worker.ready_at >= DETACHED_SAVE_SECONDS
        if worker.leaves and core.phase is Phase.DETACHED and is_unsaved and waits_long:
            worker.detached_progress = core.progress
            self.save(worker)

    def advance_operation(self, worker: Worker, operation: Operation) -> None:
        complete = len(operation.contributions) == worker.core.world_size
        broken = self.has_broken_group(worker)
        if complete and not (broken and self.random.random() < 0.5):
            worker.operation = None
            self.act(worker, worker.core.handle(self.outcome(worker, operation)))
        elif broken or self.now - operation.began > COLLECTIVE_SECONDS:
            self.give_up_operation(worker)

    def give_up_operation(self, worker: Worker) -> None:
        self.act(worker, worker.core.handle(GroupLost("the connection is closed")))

    def has_broken_group(self, worker: Worker) -> bool:
        """Return True if a member of this worker's generation has left it or died, which closes its connections."""
        generation = worker.core.generation
        members = [
            agent.worker
            for agent in self.alive()
            if agent.worker.core.generation == generation
            and agent.worker.core.phase is not Phase.DETACHED
        ]
        missing = worker.core.world_size - len(members)
        return missing > 0 and len(self.pending_members(generation)) < missing

    def pending_members(self, generation: int) -> list[Worker]:
        """Return members that have not received their generation yet; to their peers they are merely late."""
        group = next((g for g in self.etcd.agreed_generations if g.number == generation), None)
        members = group.members if group else ()
        return [
            agent.worker
            for agent in self.alive()
            if agent.lease_identity in members and agent.worker.core.generation < generation
        ]

    def outcome(self, worker: Worker, operation: Operation) -> Event:
        contributions = [operation.contributions[rank] for rank in range(worker.core.world_size)]
        match operation.kind:
            case "connect":
                return Connected()
            case "compare":
                return Compared(tuple(contributions))
            case "copy":
                plan = contributions[0][0]
                if worker.state is None:
                    _, worker.state, worker.evaluated_step = contributions[plan.sources[0]]
                if worker.core.rank not in plan.sources:
                    worker.computed_units = ()
                worker.group_units = plan.computed_units
                return Copied()
            case "confirm":
                return Confirmed(contributions[worker.core.rank])
            case "evaluate":
                return self.outcome_of_evaluation(worker, contributions)
        if len({state for _, state in contributions}) != 1:
            self.violations.append("a step was summed over different states")
        computed = [
            unit for (_, spans), _ in contributions for span in spans for unit in range(*span)
        ]
        if sorted(computed) != list(range(self.units(worker))):
            self.violations.append(f"a step was summed over the units {sorted(computed)}")
        votes = [vote for (vote, _), _ in contributions]
        regroups = sum(regroup for regroup, _ in votes)
        leavers = self.leavers(worker, [leaves and regroups > 0 for _, leaves in votes])
        return Summed(regroups, leavers)

    def outcome_of_evaluation(
        self, worker: Worker, votes: list[tuple[bool, bool]]
    ) -> RegroupAgreed | EpochEnded:
        if any(regroup for regroup, _ in votes):
            leavers = self.leavers(worker, [leaves for _, leaves in votes])
            self.save_before_regroup(worker)
            return RegroupAgreed(leavers)
        worker.evaluated_step = len(worker.state or ())
        return EpochEnded()

    def leavers(self, worker: Worker, leaves: list[bool]) -> Leavers:
        """Return which workers leave, by the votes of all ranks."""
        worker.saves = any(leaves)
        if not any(leaves):
            return Leavers.NONE
        if not leaves[worker.core.rank]:
            return Leavers.OTHERS
        return Leavers.ALL if all(leaves) else Leavers.THIS

    def maybe_commit(self, worker: Worker) -> None:
        core = worker.core
        if core.phase is Phase.TRAINING and core.rank == 0 and worker.snapshot is None:
            if self.random.random() < 0.6 and worker.state is not None:
                self.save(worker)
        elif worker.snapshot and self.random.random() < worker.write_chance:
            snapshot_generation, progress, state = worker.snapshot
            worker.snapshot = None
            if number := core.fence(snapshot_generation):
                self.request_commit(CommitRequest(worker, number, progress, state))
        if worker.writes and not self.is_writing(worker):
            self.act(worker, core.handle(Written()))

    def is_writing(self, worker: Worker) -> bool:
        """Return True if a worker's checkpoint is not written and committed yet."""
        return worker.snapshot is not None

    def writes_remain(self) -> bool:
        """Return True if nodes that have departed still write or commit a checkpoint."""
        return any(
            agent.has_departed and (agent.worker.writes or self.is_writing(agent.worker))
            for agent in self.started_agents()
        )

    def request_commit(self, request: CommitRequest) -> None:
        """Commit a written state in one transaction, if its generation is current and no later step is committed."""
        current, committed = self.etcd.generation, self.etcd.committed
        if not current or current.number != request.number:
            return
        if committed and committed[-1][0] >= request.progress:
            return
        committed.append((request.progress, request.state))
        self.announce_commit(self.alive())

    def announce_commit(self, agents: Sequence[LiveAgent]) -> None:
        """Pass the newest commit on to the workers of leaving nodes, which may have waited for it."""
        for agent in agents:
            if agent.worker.leaves and self.etcd.committed and not agent.unreachable():
                agent.worker.inbox.append(Committed(self.etcd.committed[-1][0]))

    def advance(self, seconds: float) -> None:
        """Let time pass; nodes that have departed complete their writes."""
        super().advance(seconds)
        for agent in self.started_agents():
            if agent.has_departed:
                self.maybe_commit(agent.worker)

    def leave(self, agent: LiveAgent) -> None:
        """Announce that a node must leave; its worker learns it before its agent acts."""
        agent.worker.leaves = True
        self.announce_commit([agent])
        agent.handle(Leave(), self.now)

    def crash(self, agent: LiveAgent) -> None:
        """Crash the worker process and start it again."""
        agent.running_generation = 0
        agent.handle(Withdrawn(), self.now)
        self.start_worker(agent)

    def move(self) -> None:
        """Make one random move; workers advance one at a time, so that faults occur between any two moves."""
        agents = self.awake()
        if self.random.random() < 0.1 or self.favored_agent not in agents:
            self.favored_agent = self.random.choice(agents) if agents else None
        agent = self.favored_agent  # most rules matter when a worker is far ahead of its peers
        if agents and self.random.random() < 0.4:
            agent = self.random.choice(agents)
        draw = self.random.random()
        if agent and draw < 0.30:
            self.deliver(agent, self.random.randint(1, 6))
        elif agent and draw < 0.90:
            self.work(agent.worker)
        elif draw < 0.95:
            self.advance(self.random.choice([0.1, 0.5, 1.0]))
        elif agent and self.random.random() < 0.5:
            self.inject_fault(agent)

    def train(self) -> None:
        for agent in self.awake():
            self.work(agent.worker)

    def stop_workers(self) -> None:
        """Do nothing: these workers stop when they handle the event."""

    def inject_fault(self, agent: Agent) -> None:
        """Inject a fault or return a machine, rarely enough that a whole group usually trains."""
        assert isinstance(agent, LiveAgent)
        frozen_agents = [candidate for candidate in self.alive() if candidate.frozen]
        for _ in range(self.random.choice([0, 0, 3, 9])):
            self.work(agent.worker)  # it is ahead of its peers when the fault occurs
        draw = self.random.random()
        if frozen_agents and draw < 0.5:
            self.random.choice(frozen_agents).frozen = False
        elif len(self.alive()) < self.limits.max_members and draw < 0.8:
            self.spawn()
        elif draw < 0.55:
            self.crash(agent)
        elif draw < 0.75:
            agent.frozen = True
        elif draw < 0.9:
            self.kill(agent)
        else:
            self.leave(agent)
