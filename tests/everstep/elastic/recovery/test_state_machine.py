"""The rules by which a worker joins, steps and recovers, tested one by one and under random schedules."""

import itertools
from typing import TypeVar

import pytest

from everstep.elastic.recovery.state_machine import (
    Apply,
    Assigned,
    AwaitRestored,
    Committed,
    Compare,
    Compared,
    Confirm,
    Confirmed,
    Connect,
    Connected,
    Copied,
    Copy,
    CopyPlan,
    EpochEnded,
    GroupLost,
    LeaveGroup,
    Leavers,
    Phase,
    Ready,
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
    plan_copy,
)
from tests.effort import seeds
from tests.everstep.elastic.membership.simulation import Agent
from tests.everstep.elastic.recovery.partial_faults import PartialFaultWorld
from tests.everstep.elastic.recovery.recovery_simulation import LiveAgent, LiveWorld, Worker

WorldType = TypeVar("WorldType", bound=LiveWorld)
SCHEDULES = 160
PARTIAL_SCHEDULES = 300
MOVES = 200  # random actions of a schedule
ONLY_COPY = Ready(may_be_only_copy=True)
FAULTLESS_PERIODS = 4  # periods of 30 s, after which training must have continued


def report(agreed_generation: int, step: int, *checksums: int) -> StateReport:
    return StateReport(StepProgress(agreed_generation, step), StepProgress(), checksums)


def training_worker(step: int = 10, *, rank: int = 1) -> Recovery:
    """Return a worker that trains in generation 2, a group of three."""
    core = Recovery()
    core.handle(WarmedUp())
    core.handle(Assigned(2, rank, 3))
    core.handle(Connected())
    core.handle(Compared((report(1, step, 7),) * 3))
    assert core.handle(Copied()) == [Train()]
    return core


def test_a_warm_worker_requests_a_rank_and_joins_its_generation() -> None:
    core = Recovery()

    assert core.handle(WarmedUp()) == [Ready()]
    assert core.handle(Assigned(1, 0, 2)) == [Connect(1, 0, 2)]
    assert core.handle(Connected()) == [Compare(StateReport(StepProgress()))]


def test_without_any_state_rank_0_restores_the_checkpoint_and_all_compare_again() -> None:
    worker_0, worker_1 = Recovery(), Recovery()
    for rank, core in enumerate((worker_0, worker_1)):
        core.handle(WarmedUp())
        core.handle(Assigned(1, rank, 2))
        core.handle(Connected())

    stateless = Compared((report(0, 0), report(0, 0)))
    assert worker_0.handle(stateless) == [Restore()]
    assert worker_1.handle(stateless) == [AwaitRestored(), Compare(StateReport(StepProgress()))]
    assert worker_0.handle(Restored(40)) == [
        AwaitRestored(),
        Compare(StateReport(StepProgress(1, 40))),
    ]


def test_a_step_is_applied_when_its_all_reduce_completes() -> None:
    core = training_worker(step=10)

    assert core.handle(Summed(0)) == [Apply(), Train()]
    assert core.progress == StepProgress(2, 11)


def test_a_vote_ends_the_generation_after_its_step() -> None:
    core = training_worker(step=10)

    assert core.handle(Summed(1)) == [Apply(), LeaveGroup(), ONLY_COPY]
    assert core.step == 11


@pytest.mark.parametrize(
    ("leavers", "ready"),
    [
        (Leavers.OTHERS, ONLY_COPY),
        (Leavers.THIS, Ready()),
        (Leavers.ALL, Ready(writes=True)),
    ],
)
def test_a_node_that_leaves_is_not_the_only_copy_once_all_have_confirmed_the_step(
    leavers: Leavers, ready: Ready
) -> None:
    core = training_worker()

    assert core.handle(Summed(1, leavers)) == [Apply(), Confirm(leavers)]
    assert core.handle(Confirmed(leavers)) == [LeaveGroup(), ready]


def test_if_all_nodes_leave_each_departs_when_its_write_is_complete() -> None:
    core = training_worker()
    core.handle(RegroupAgreed(Leavers.ALL))
    core.handle(Confirmed(Leavers.ALL))

    assert core.handle(Written()) == [Ready()]


def test_a_step_that_was_not_confirmed_may_be_the_only_copy() -> None:
    core = training_worker(step=10)
    core.handle(Summed(1, Leavers.ALL))

    assert core.handle(GroupLost("peer")) == [RollBack(), LeaveGroup(), ONLY_COPY]
    assert core.step == 11, "the step itself is complete"


def test_a_committed_state_is_not_the_only_copy() -> None:
    core = training_worker(step=10)
    core.handle(GroupLost("peer"))

    assert core.handle(Committed(StepProgress(2, 9))) == []
    assert core.handle(Committed(StepProgress(2, 10, "run"))) == [Ready()]
    assert core.handle(Committed(StepProgress(2, 11))) == [], "it has been reported"


def test_a_step_without_a_completed_all_reduce_is_rolled_back() -> None:
    core = training_worker(step=10)

    assert core.handle(GroupLost("peer")) == [RollBack(), LeaveGroup(), ONLY_COPY]
    assert core.progress == StepProgress(2, 10)


def test_a_worker_that_has_ended_its_epoch_sends_its_state_to_those_that_have_not() -> None:
    core = training_worker(step=10)

    assert core.handle(EpochEnded()) == [Train()]

    assert core.progress > training_worker(step=10).progress
    assert core.progress < training_worker(step=11).progress
    plan = plan_copy((report(2, 10, 7, 7), StateReport(core.progress, checksums=(8, 7))))
    assert plan
    assert (plan.sources, plan.missing_tensors) == ((1,), {0: (0,)})
    assert not plan.unequal_ranks, (
        "the callbacks have changed the state, and no hardware is at fault"
    )


def test_an_applied_step_counts_more_than_the_end_of_the_epoch_before_it() -> None:
    core = training_worker(step=10)
    core.handle(EpochEnded())

    core.handle(Summed(votes=0))

    assert core.progress == StepProgress(2, 11)


def test_a_generation_can_end_during_an_evaluation() -> None:
    core = training_worker(step=10)

    assert core.handle(RegroupAgreed()) == [LeaveGroup(), ONLY_COPY]
    assert core.step == 10


def test_workers_with_the_last_step_send_it_to_those_without() -> None:
    plan = plan_copy([report(2, 10, 1, 5), report(2, 11, 2, 5), report(2, 11, 2, 5)])

    assert plan == CopyPlan(StepProgress(2, 11), (1, 2), {0: (0,)}), (
        "only different tensors are copied"
    )


def test_copies_are_distributed_over_their_sources() -> None:
    plan = CopyPlan(StepProgress(2, 11), (1, 2), {0: (0, 1, 2)})

    assert [plan.source_of(tensor) for tensor in range(3)] == [1, 2, 1]


def test_the_history_of_the_group_overrides_a_longer_one_of_a_thawed_worker() -> None:
    plan = plan_copy([report(5, 95, 1), report(4, 100, 2)])

    assert plan is not None
    assert plan.progress == StepProgress(5, 95)


def test_a_worker_with_a_different_state_at_the_same_step_gets_the_state_of_the_group() -> None:
    plan = plan_copy([report(2, 10, 1), report(2, 10, 1), report(2, 10, 9)])

    assert plan == CopyPlan(StepProgress(2, 10), (0, 1), {2: (0,)}, unequal_ranks=(2,))


def test_the_state_of_the_majority_is_used_if_states_of_the_same_step_are_unequal() -> None:
    plan = plan_copy([report(2, 10, 9), report(2, 10, 1), report(2, 9, 5), report(2, 10, 1)])

    assert plan is not None
    assert plan.sources == (1, 3), "one worker is more likely at fault than two"
    assert plan.unequal_ranks == (0,), "a worker that is only behind is not one of them"
    assert plan.missing_tensors == {0: (0,), 2: (0,)}


def test_the_state_of_the_lower_rank_is_used_if_two_states_are_unequal() -> None:
    plan = plan_copy([report(2, 10, 9), report(2, 10, 1)])

    assert plan is not None
    assert (plan.sources, plan.unequal_ranks) == ((0,), (1,))


def test_results_of_the_step_in_flight_are_kept() -> None:
    reports = [
        StateReport(StepProgress(2, 10), checksums=(1,), computed_units=spans)
        for spans in (((0, 2),), ((4, 6),))
    ]

    plan = plan_copy([*reports, report(0, 0)])

    assert plan is not None
    assert plan.computed_units == ((0, 2), (4, 6))


def test_results_of_a_worker_from_an_older_group_are_not_kept() -> None:
    group_report = StateReport(StepProgress(3, 10), checksums=(1,), computed_units=((0, 2),))
    # The others have taken over the share of the thawed worker.
    thawed_report = StateReport(StepProgress(2, 10), checksums=(1,), computed_units=((2, 4),))

    plan = plan_copy([group_report, thawed_report])

    assert plan is not None
    assert plan.sources == (0,)
    assert plan.computed_units == ((0, 2),)


def test_a_checkpoint_ahead_of_all_workers_is_restored() -> None:
    reports = [StateReport(StepProgress(2, 10), StepProgress(2, 11), (1,)), report(2, 10, 1)]

    assert plan_copy(reports) is None


def test_a_state_that_a_checkpoint_replaces_counts_as_none_until_all_of_it_is_loaded() -> None:
    """The worker may load its shard, and lose the other workers of its node before they have loaded theirs."""
    core = training_worker(step=10, rank=0)
    core.handle(GroupLost("peer"))
    core.handle(Assigned(3, 0, 1, StepProgress(2, 16)))
    core.handle(Connected())
    ahead = StateReport(StepProgress(2, 10), StepProgress(2, 16), (7,))
    assert core.handle(Compared((ahead,))) == [Restore()]

    core.handle(GroupLost("a worker of this node"))

    assert core.progress == StepProgress()


def test_a_partially_copied_state_counts_as_no_state() -> None:
    core = Recovery()
    core.handle(WarmedUp())
    core.handle(Assigned(3, 1, 2))
    core.handle(Connected())
    copy = core.handle(Compared((report(2, 10, 1), report(2, 9, 0))))
    assert isinstance(copy[0], Copy)

    core.handle(GroupLost("the source of the copy crashed"))
    core.handle(Assigned(4, 0, 1))

    assert core.handle(Connected()) == [Compare(StateReport(StepProgress()))]


def test_a_state_that_is_being_overwritten_is_no_longer_offered() -> None:
    core = training_worker(step=10)
    core.handle(GroupLost("peer"))
    core.handle(Assigned(3, 1, 2))
    core.handle(Connected())
    copy = core.handle(Compared((report(2, 11, 1), report(2, 10, 0))))
    assert isinstance(copy[0], Copy)

    core.handle(GroupLost("the source of the copy crashed"))
    core.handle(Assigned(4, 0, 1))

    actions = core.handle(Connected())
    assert actions == [Compare(StateReport(StepProgress()))], (
        "its tensors are a mixture of two states"
    )


def test_work_in_flight_survives_a_group_that_fails_before_it_trains() -> None:
    core = training_worker(step=10)
    assert RollBack() in core.handle(GroupLost("peer"))
    core.handle(Assigned(3, 0, 2))

    actions_while_connecting = core.handle(GroupLost("the others could not be reached"))
    core.handle(Assigned(4, 0, 2))
    core.handle(Connected())
    actions_while_comparing = core.handle(GroupLost("peer"))

    assert actions_while_connecting == actions_while_comparing == [LeaveGroup(), ONLY_COPY], (
        "a second roll-back would drop gradients"
    )


@pytest.mark.parametrize("own_checksum", [0, 1], ids=["with other tensors", "with equal tensors"])
def test_the_state_of_another_worker_forbids_older_snapshots(own_checksum: int) -> None:
    core = training_worker(step=10)
    assert core.unbroken_since == 0
    core.handle(GroupLost("peer"))
    core.handle(Assigned(3, 1, 2))
    core.handle(Connected())
    core.handle(Compared((report(2, 11, 1), report(2, 10, own_checksum))))

    assert core.unbroken_since == 3


def test_a_thawed_writer_does_not_commit_a_history_that_the_group_has_abandoned() -> None:
    core = training_worker(step=10, rank=0)
    assert core.fence(snapshot_generation=2) == 2
    core.handle(GroupLost("its lease lapsed while it was frozen"))
    core.handle(Assigned(4, 2, 3))
    core.handle(Connected())
    assert core.fence(snapshot_generation=2) == 2, (
        "etcd refuses a commit of generation 2, which is no longer current"
    )

    core.handle(Compared((report(3, 9, 1), report(3, 9, 1), report(2, 10, 2))))
    assert core.fence(snapshot_generation=2) == 0
    core.handle(Copied())
    assert core.fence(snapshot_generation=2) == 0
    assert core.fence(snapshot_generation=4) == 4


def test_a_restore_changes_the_progress_last_since_the_fence_reads_it_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = Recovery()
    core.handle(WarmedUp())
    core.handle(Assigned(1, 0, 2))
    core.handle(Connected())
    core.handle(Compared((report(0, 0), report(0, 0))))
    changed_fields: list[str] = []

    def record_change(core: Recovery, name: str, value: object) -> None:
        changed_fields.append(name)
        object.__setattr__(core, name, value)

    monkeypatch.setattr(Recovery, "__setattr__", record_change)
    core.handle(Restored(40))

    assert changed_fields.index("unbroken_since") < changed_fields.index("progress")


def test_late_messages_are_ignored() -> None:
    core = training_worker()
    initial_state = (core.phase, core.progress)

    for message in (
        WarmedUp(),
        Connected(),
        Compared(()),
        Copied(),
        Restored(3),
        Assigned(2, 0, 1),
    ):
        assert core.handle(message) == []

    assert (core.phase, core.progress) == initial_state
    core.handle(GroupLost("peer"))
    assert core.handle(GroupLost("again")) == []
    assert core.handle(Assigned(2, 1, 3)) == [], "a generation is never entered twice"


@pytest.mark.schedules
@pytest.mark.parametrize("min_members", [1, 2])
def test_random_schedules_lose_and_duplicate_no_step_and_commit_one_history(
    min_members: int,
) -> None:
    for seed in seeds(SCHEDULES // 2):
        world = started(LiveWorld(seed, nodes=4, min_members=min_members), seed)
        for _ in range(MOVES):
            world.move()
        check(world, seed)
        while sum(not agent.core.leaving for agent in world.alive()) < min_members:
            world.spawn()
        initial_progress = progress(world)
        world.end_faults()
        check(world, seed)
        leaving_names = [agent.name for agent in world.alive() if agent.core.leaving]
        assert not leaving_names, f"seed {seed}: {leaving_names} never left"
        assert progress(world) > initial_progress, (
            f"seed {seed}: no worker trains\n{describe(world)}"
        )


def test_the_schedules_interrupt_copies() -> None:
    worlds = [PartialFaultWorld(seed, nodes=4, min_members=1) for seed in range(40)]
    for world in worlds:
        for _ in range(2 * MOVES):
            world.move()

    assert sum(world.interrupted_copies for world in worlds) > 0, (
        "otherwise rule 4 of the state machine is not tested"
    )


@pytest.mark.schedules
@pytest.mark.parametrize("coordinators", [0, 2])
@pytest.mark.parametrize("min_members", [1, 2])
def test_partial_faults_and_late_duplicated_or_reordered_messages_break_no_invariant(
    min_members: int, coordinators: int
) -> None:
    for seed in seeds(PARTIAL_SCHEDULES // (5 if coordinators else 2)):
        play(seed, min_members, coordinators=coordinators)


class DrainWorld(LiveWorld):
    """A schedule whose only events are nodes that join and leave; `drains` ends the joins."""

    drains = False

    def inject_fault(self, agent: Agent) -> None:
        assert isinstance(agent, LiveAgent)
        if not self.drains and len(self.alive()) < self.limits.max_members:
            self.spawn()
        if self.random.random() < 0.5:
            self.leave(agent)


@pytest.mark.schedules
@pytest.mark.parametrize("min_members", [1, 2])
def test_nodes_that_all_leave_lose_no_step(min_members: int) -> None:
    for seed in seeds(SCHEDULES // 2):
        world = started(DrainWorld(seed, nodes=4, min_members=min_members), seed)
        for _ in range(MOVES // 4):
            world.move()
        world.drains = True
        for agent in world.alive():
            for _ in range(world.random.choice([0, 1, 5, 30])):
                world.move()
            world.leave(agent)
        for _ in range(20 * MOVES):
            if not world.alive() and not world.writes_remain():
                break
            world.move()

        check(world, seed)
        reached_step = max(len(agent.worker.state or ()) for agent in world.started_agents())
        committed_step = len(world.etcd.committed[-1][1]) if world.etcd.committed else 0
        # A single worker may have received the last sum. Its commit is refused if the group that it was
        # about to pass its state on to never trained, and one node cannot form another group.
        is_refused = min_members > 1 and committed_step == reached_step - 1
        assert committed_step == reached_step or is_refused, f"seed {seed}: steps are lost"
        assert not world.alive() or is_refused, f"seed {seed}: nodes stay\n{describe(world)}"


def started(world: WorldType, seed: int) -> WorldType:
    """Let the group of an odd seed train first: otherwise most faults would occur while a group forms."""
    if seed % 2:
        world.end_faults()
    return world


def play(
    seed: int,
    min_members: int,
    kind: type[PartialFaultWorld] = PartialFaultWorld,
    coordinators: int = 0,
) -> PartialFaultWorld:
    """Run and check one schedule of partial faults; return its final state, which benchmarks evaluate."""
    world = started(kind(seed, nodes=4, min_members=min_members, coordinators=coordinators), seed)
    for _ in range(MOVES):
        world.move()
    check(world, seed)
    initial_progress = progress(world)
    for _ in range(FAULTLESS_PERIODS):  # avoided members are probed again, and overdue ones evicted
        while sum(not agent.core.leaving for agent in world.alive()) < min_members:
            world.spawn()
        world.end_faults()
        if progress(world) > initial_progress:
            break
    check(world, seed)
    assert progress(world) > initial_progress, f"seed {seed}: no worker trains\n{describe(world)}"
    return world


@pytest.mark.parametrize("seed", range(20))
def test_a_worker_that_hangs_in_the_kernel_does_not_stop_the_others_permanently(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent of the worker is alive, and SIGKILL does not end the worker."""
    world = LiveWorld(seed, nodes=3, min_members=1)
    world.end_faults()
    victim, leaver = world.alive()[seed % 3], world.alive()[(seed + 1) % 3]
    work = world.work
    monkeypatch.setattr(
        world, "work", lambda worker: None if worker.agent is victim else work(worker)
    )
    world.leave(leaver)
    for _ in range(4):
        world.end_faults()
    initial_progress = progress(world)

    world.end_faults()

    assert progress(world) > initial_progress, (
        f"seed {seed}: the others continue\n{describe(world)}"
    )
    check(world, seed)


def check(world: LiveWorld, seed: int) -> None:
    assert not world.violations, f"seed {seed}: {world.violations[0]}"
    for agent in world.alive():
        state = agent.worker.state
        if state is not None:
            steps = [step for step, _ in state]
            assert steps == list(range(1, len(state) + 1)), f"seed {seed}: {steps}"
    committed_states = [state for _, state in world.etcd.committed]
    for earlier, later in itertools.pairwise(committed_states):
        shared_steps = min(len(earlier), len(later))
        assert earlier[:shared_steps] == later[:shared_steps], (
            f"seed {seed}: two histories were committed: ...{earlier[-3:]} and ...{later[-3:]}"
        )
    training_workers = [
        agent.worker
        for agent in world.awake()
        if agent.worker.core.phase is Phase.TRAINING and agent.worker.operation
    ]
    for generation in {worker.core.generation for worker in training_workers}:
        states = {
            worker.state
            for worker in training_workers
            if worker.core.generation == generation
            and worker.count == max_count(training_workers, generation)
        }
        assert len(states) <= 1, f"seed {seed}: members of {generation} differ in the same step"


def max_count(workers: list[Worker], generation: int) -> int:
    return max(worker.count for worker in workers if worker.core.generation == generation)


def progress(world: LiveWorld) -> int:
    return sum(len(agent.worker.state or ()) for agent in world.started_agents())


def describe(world: LiveWorld) -> str:
    lines = [f"current {world.etcd.generation}, members {sorted(world.etcd.members)}"]
    for agent in world.alive():
        worker = agent.worker
        lines.append(
            f"{agent.lease_identity}: agent generation={agent.core.own_generation} "
            f"wants={agent.core.wants_group}; worker {worker.core.phase} gen {worker.core.generation} op "
            f"{worker.operation and (worker.operation.kind, sorted(worker.operation.contributions))}"
        )
    return "\n".join(lines)
