"""Workers and their agents under random schedules: real `Membership` and `Recovery`, the rest simulated.

A worker's state is a history: the steps it holds, each with the generation that applied it. Collectives are
simulated as they are: nobody gets a result before all have given their part, but then each gets it, or fails to
get it, by itself; a member that left makes the others fail, a frozen one makes them wait for their agent.
"""

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from everstep.elastic.leftover import Span, merged, part, rest
from everstep.elastic.membership import Membership
from everstep.elastic.membership_events import Begin, Leave, Ready, Regroup, Stop, Withdrawn
from everstep.elastic.recovery import (
    Apply,
    AskIn,
    Called,
    Compare,
    Compared,
    Copied,
    Copy,
    Event,
    Lost,
    Meet,
    Met,
    Part,
    Phase,
    Recovery,
    Report,
    Restore,
    Restored,
    RollBack,
    Standing,
    Summed,
    Train,
    Warm,
)
from tests.unit.elastic.simulation import Agent, World

UNITS = 6  # of a step's global batch
History = tuple[tuple[int, int], ...]  # (step, generation that applied it)


@dataclass
class Operation:
    """One collective of one generation."""

    kind: str
    given: dict[int, Any] = field(default_factory=dict)


@dataclass
class Worker:
    """A worker process: its machine, its state, and the collective that it is in."""

    agent: "LiveAgent"
    core: Recovery = field(default_factory=Recovery)
    state: History | None = ()  # None: torn
    called: deque[Event] = field(default_factory=deque)
    operation: Operation | None = None
    count: int = 0  # collectives begun in this generation
    in_flight: bool = False
    mine: tuple[Span, ...] = ()  # what it has computed of the step in flight
    group: tuple[Span, ...] = ()  # what all had when the generation began
    wish: int = 0  # the generation that somebody wants to change
    snapshot: tuple[int, Standing, History] | None = None
    writes: float = 0.6  # chance that its writer is done at a move: some disks are slow


class LiveAgent(Agent):
    """A node whose worker stays."""

    worker: Worker | None = None

    def worker_ended(self, now: float) -> None:
        """A living worker's end is `LiveWorld.crash`."""

    def carry_out(self, action: object) -> None:
        super().carry_out(action)
        worker = self.worker
        if worker is None:
            return
        match action:
            case Begin(generation, rank):
                committed = self.etcd.committed[-1][0] if self.etcd.committed else Standing()
                size = len(generation.members)
                worker.called.append(Called(generation.number, rank, size, committed))
            case Stop():
                worker.called.append(Lost("the agent says so"))
            case Regroup():
                worker.wish = self.running


class LiveWorld(World):
    """A schedule's state with living workers."""

    def __init__(self, seed: int, nodes: int, min_members: int) -> None:
        self.operations: dict[tuple[int, int], Operation] = {}
        self.faults: list[str] = []
        self.favoured: Agent | None = None
        super().__init__(seed, nodes, min_members)

    def spawn(self) -> None:
        self.spawned += 1
        rules = replace(self.rules, orderly_seconds=1.0, living=True)
        agent = LiveAgent(f"n{self.spawned}", self.etcd, Membership(rules), renewed=self.now)
        self.agents.append(agent)
        self.etcd.watchers.append(agent)
        agent.inbox.append(self.etcd.snapshot())
        self.start_worker(agent)

    def start_worker(self, agent: LiveAgent) -> None:
        agent.worker = Worker(agent, writes=self.random.choice([0.6, 0.05]))
        self.act(agent.worker, agent.worker.core.handle(Warm()))

    # --- what a worker does ---

    def act(self, worker: Worker, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case AskIn():
                    worker.agent.running = 0
                    worker.agent.handle(Ready(), self.now)
                case Apply():
                    self.apply(worker)
                case RollBack():
                    self.roll_back(worker)
                case Part():
                    worker.operation = None
                case _:
                    self.act_in_group(worker, action)

    def act_in_group(self, worker: Worker, action: object) -> None:
        match action:
            case Meet():
                worker.count = 0
                self.begin(worker, "meet", None)
            case Compare(report):
                self.begin(worker, "compare", self.report(worker, report))
            case Restore():
                worker.state = self.etcd.committed[-1][1] if self.etcd.committed else ()
                worker.mine = ()
                worker.called.append(Restored(len(worker.state)))
            case Copy(plan):
                if plan.lacks.get(worker.core.rank):
                    worker.state = None
                self.begin(worker, "copy", (plan, worker.state))
            case Train():
                worker.mine = merged([*worker.mine, *self.part(worker)])
                self.begin(worker, "sum", (worker.wish == worker.core.generation, worker.mine))
                worker.in_flight = True

    def report(self, worker: Worker, report: Report) -> Report:
        if (worker.state is None) != (report.standing.lineage == 0) and report.standing.lineage:
            self.faults.append("a torn state was offered")
        return Report(report.standing, report.committed, (hash(worker.state),), worker.mine)

    def units(self, worker: Worker) -> int:
        """Of the step in flight."""
        del worker
        return UNITS

    def part(self, worker: Worker) -> tuple[Span, ...]:
        """What is this worker's to compute of the step in flight."""
        left = rest(self.units(worker), worker.group)
        return part(left, worker.core.rank, worker.core.world_size)

    def roll_back(self, worker: Worker) -> None:
        """The step in flight is broken: what was computed of it is kept, or some of it, or spoiled."""
        worker.in_flight = False
        what = self.random.random()
        if what < 0.2:
            worker.mine = ()
        elif what < 0.4:  # only what it had before this generation, and a unit more
            begun = self.part(worker)
            units = self.units(worker)
            before = rest(units, [*rest(units, worker.mine), *begun])
            worker.mine = merged([*before, *((first, first + 1) for first, _ in begun[:1])])

    def apply(self, worker: Worker) -> None:
        assert worker.state is not None, "a step was applied to a torn state"
        worker.in_flight, worker.mine, worker.group = False, (), ()
        worker.state = (*worker.state, (len(worker.state) + 1, worker.core.generation))

    def begin(self, worker: Worker, kind: str, payload: object) -> None:
        key = (worker.core.generation, worker.count)
        operation = self.operations.setdefault(key, Operation(kind))
        if operation.kind != kind:
            self.faults.append(f"{kind} met {operation.kind} in {key}")
        if kind == "sum":
            payload = (payload, worker.state)
        operation.given[worker.core.rank] = payload
        worker.operation, worker.count = operation, worker.count + 1

    # --- moves ---

    def work(self, worker: Worker) -> None:
        """One worker gets on, if it can."""
        if worker.called and not isinstance(worker.called[0], Called):
            self.act(worker, worker.core.handle(worker.called.popleft()))
        elif worker.operation:
            self.advance_operation(worker, worker.operation)
        elif worker.called:
            self.act(worker, worker.core.handle(worker.called.popleft()))
        self.commit_perhaps(worker)

    def advance_operation(self, worker: Worker, operation: Operation) -> None:
        complete = len(operation.given) == worker.core.world_size
        broken = self.broken(worker)
        if complete and not (broken and self.random.random() < 0.5):
            worker.operation = None
            self.act(worker, worker.core.handle(self.outcome(worker, operation)))
        elif broken:
            self.act(worker, worker.core.handle(Lost("the connection is closed")))

    def broken(self, worker: Worker) -> bool:
        """Whether a member of this worker's generation has left it or died: its connections are closed."""
        generation = worker.core.generation
        inside = [
            agent.worker
            for agent in self.alive()
            if agent.worker
            and agent.worker.core.generation == generation
            and agent.worker.core.phase is not Phase.APART
        ]
        arrived = [*inside, *self.on_the_way(generation)]
        return len(arrived) < worker.core.world_size

    def on_the_way(self, generation: int) -> list[Worker]:
        """Members that have not heard of their generation yet: nobody can tell them from late ones."""
        group = next((g for g in self.etcd.agreed if g.number == generation), None)
        members = group.members if group else ()
        return [
            agent.worker
            for agent in self.alive()
            if agent.lease_of in members
            and agent.worker
            and agent.worker.core.generation < generation
        ]

    def outcome(self, worker: Worker, operation: Operation) -> Event:
        given = [operation.given[rank] for rank in range(worker.core.world_size)]
        match operation.kind:
            case "meet":
                return Met()
            case "compare":
                return Compared(tuple(given))
            case "copy":
                plan = given[0][0]
                if worker.state is None:
                    worker.state = given[plan.holders[0]][1]
                if worker.core.rank not in plan.holders:
                    worker.mine = ()
                worker.group = plan.kept
                return Copied()
        if len({state for _, state in given}) != 1:
            self.faults.append("a step was summed over different states")
        computed = [unit for (_, spans), _ in given for span in spans for unit in range(*span)]
        if sorted(computed) != list(range(self.units(worker))):
            self.faults.append(f"a step was summed over the units {sorted(computed)}")
        return Summed(sum(vote for (vote, _), _ in given))

    def commit_perhaps(self, worker: Worker) -> None:
        core = worker.core
        if core.phase is Phase.TRAINING and core.rank == 0 and worker.snapshot is None:
            if self.random.random() < 0.6 and worker.state is not None:
                worker.snapshot = (core.generation, core.standing, worker.state)
        elif worker.snapshot and self.random.random() < worker.writes:
            taken_in, standing, state = worker.snapshot
            worker.snapshot = None
            current = self.etcd.generation
            if current and current.number == core.fence(taken_in):
                self.etcd.committed.append((standing, state))

    def crash(self, agent: LiveAgent) -> None:
        """The worker process dies and is started again."""
        agent.running = 0
        agent.handle(Withdrawn(), self.now)
        self.start_worker(agent)

    def move(self) -> None:
        """One random move; workers get on one at a time, so that faults fall between any two of them."""
        agents = self.awake()
        if self.random.random() < 0.1 or self.favoured not in agents:
            self.favoured = self.random.choice(agents) if agents else None
        agent = self.favoured  # a worker far ahead of its peers is what the rules are about
        if agents and self.random.random() < 0.4:
            agent = self.random.choice(agents)
        what = self.random.random()
        if agent and what < 0.30:
            self.deliver(agent, self.random.randint(1, 6))
        elif agent and what < 0.90:
            self.work(agent.worker)
        elif what < 0.95:
            self.advance(self.random.choice([0.1, 0.5, 1.0]))
        elif agent and self.random.random() < 0.5:
            self.disturb(agent)

    def train(self) -> None:
        for agent in self.awake():
            self.work(agent.worker)

    def stop_workers(self) -> None:
        """Workers obey by themselves."""

    def disturb(self, agent: Agent) -> None:
        """A fault, or a machine's return: most of the time a whole group trains."""
        assert isinstance(agent, LiveAgent)
        frozen = [other for other in self.alive() if other.frozen]
        for _ in range(self.random.choice([0, 0, 3, 9])):
            self.work(agent.worker)  # it is ahead of its peers when the fault strikes
        what = self.random.random()
        if frozen and what < 0.5:
            self.random.choice(frozen).frozen = False
        elif len(self.alive()) < self.rules.max_members and what < 0.8:
            self.spawn()
        elif what < 0.55:
            self.crash(agent)
        elif what < 0.75:
            agent.frozen = True
        elif what < 0.9:
            self.kill(agent)
        else:
            agent.handle(Leave(), self.now)
