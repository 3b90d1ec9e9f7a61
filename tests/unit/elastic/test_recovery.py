import itertools
import os

import pytest

from everstep.elastic.recovery import (
    Agreed,
    Apply,
    AskIn,
    Called,
    Compare,
    Compared,
    Copied,
    Copy,
    Lost,
    Meet,
    Met,
    Part,
    Phase,
    Plan,
    Recovery,
    Report,
    Restore,
    Restored,
    RollBack,
    Standing,
    Summed,
    Train,
    Warm,
    plan,
)
from tests.unit.elastic.recovery_simulation import LiveWorld

SCHEDULES = int(os.environ.get("EVERSTEP_SCHEDULES", "120"))
MOVES = 200


def report(lineage: int, step: int, *sums: int) -> Report:
    return Report(Standing(lineage, step), Standing(), sums)


def trains(step: int = 10, *, rank: int = 1) -> Recovery:
    """A worker in the second generation of a group of three."""
    core = Recovery()
    core.handle(Warm())
    core.handle(Called(2, rank, 3))
    core.handle(Met())
    core.handle(Compared((report(1, step, 7),) * 3))
    assert core.handle(Copied()) == [Train()]
    return core


def test_a_warm_worker_asks_in_and_meets_the_generation_that_it_is_called_to():
    core = Recovery()

    assert core.handle(Warm()) == [AskIn()]
    assert core.handle(Called(1, 0, 2)) == [Meet(1, 0, 2)]
    assert core.handle(Met()) == [Compare(Report(Standing()))]


def test_where_nobody_has_a_state_rank_0_takes_up_the_checkpoint_and_the_others_compare_again():
    first, other = Recovery(), Recovery()
    for rank, core in enumerate((first, other)):
        core.handle(Warm())
        core.handle(Called(1, rank, 2))
        core.handle(Met())

    nobody = Compared((report(0, 0), report(0, 0)))
    assert first.handle(nobody) == [Restore()]
    assert other.handle(nobody) == [Compare(Report(Standing()))]
    assert first.handle(Restored(40)) == [Compare(Report(Standing(1, 40)))]


def test_a_step_is_applied_when_its_sum_has_arrived():
    core = trains(step=10)

    assert core.handle(Summed(0)) == [Apply(), Train()]
    assert core.standing == Standing(2, 11)


def test_a_vote_ends_the_generation_after_the_step_that_carried_it():
    core = trains(step=10)

    assert core.handle(Summed(1)) == [Apply(), Part(), AskIn()]
    assert core.step == 11


def test_a_step_whose_sum_never_came_is_rolled_back_and_does_not_count():
    core = trains(step=10)

    assert core.handle(Lost("peer")) == [RollBack(), Part(), AskIn()]
    assert core.standing == Standing(2, 10)


def test_an_evaluation_can_be_left_without_a_step():
    core = trains(step=10)

    assert core.handle(Agreed()) == [Part(), AskIn()]
    assert core.step == 10


def test_who_had_the_last_sum_gives_the_step_to_who_had_not():
    chosen = plan([report(2, 10, 1, 5), report(2, 11, 2, 5), report(2, 11, 2, 5)])

    assert chosen == Plan(Standing(2, 11), (1, 2), {0: (0,)}), "only what differs is copied"


def test_holders_take_turns_in_giving():
    chosen = Plan(Standing(2, 11), (1, 2), {0: (0, 1, 2)})

    assert [chosen.giver(part) for part in range(3)] == [1, 2, 1]


def test_a_thawed_worker_s_longer_history_yields_to_the_group_s():
    chosen = plan([report(5, 95, 1), report(4, 100, 2)])

    assert chosen is not None
    assert chosen.standing == Standing(5, 95)


def test_a_worker_whose_bytes_differ_at_the_same_step_is_given_the_others_():
    chosen = plan([report(2, 10, 1), report(2, 10, 1), report(2, 10, 9)])

    assert chosen == Plan(Standing(2, 10), (0, 1), {2: (0,)})


def test_what_the_holders_have_computed_of_the_step_in_flight_is_kept():
    mine = [Report(Standing(2, 10), sums=(1,), kept=spans) for spans in (((0, 2),), ((4, 6),))]

    chosen = plan([*mine, report(0, 0)])

    assert chosen is not None
    assert chosen.kept == ((0, 2), (4, 6))


def test_what_a_worker_of_an_older_group_has_computed_is_not():
    mine = Report(Standing(3, 10), sums=(1,), kept=((0, 2),))
    thawed = Report(Standing(2, 10), sums=(1,), kept=((2, 4),))  # the others have taken that over

    chosen = plan([mine, thawed])

    assert chosen is not None
    assert chosen.holders == (0,)
    assert chosen.kept == ((0, 2),)


def test_a_checkpoint_further_than_everybody_is_taken_up():
    reports = [Report(Standing(2, 10), Standing(2, 11), (1,)), report(2, 10, 1)]

    assert plan(reports) is None


def test_a_state_that_is_being_overwritten_counts_as_none_until_it_is_whole():
    core = Recovery()
    core.handle(Warm())
    core.handle(Called(3, 1, 2))
    core.handle(Met())
    copy = core.handle(Compared((report(2, 10, 1), report(2, 9, 0))))
    assert isinstance(copy[0], Copy)

    core.handle(Lost("the giver died"))
    core.handle(Called(4, 0, 1))

    assert core.handle(Met()) == [Compare(Report(Standing()))]


def test_a_copied_state_forbids_older_snapshots():
    core = trains(step=10)
    assert core.unbroken_since == 0
    core.handle(Lost("peer"))
    core.handle(Called(3, 1, 2))
    core.handle(Met())
    core.handle(Compared((report(2, 11, 1), report(2, 10, 0))))

    assert core.unbroken_since == 3


def test_a_thawed_writer_commits_nothing_while_it_forms_the_generation_that_has_left_its_history():
    core = trains(step=10, rank=0)
    assert core.fence(taken_in=2) == 2
    core.handle(Lost("its lease lapsed while it was frozen"))
    core.handle(Called(4, 2, 3))
    core.handle(Met())
    assert core.fence(taken_in=2) == 2, "which is not the current one any more"

    core.handle(Compared((report(3, 9, 1), report(3, 9, 1), report(2, 10, 2))))
    assert core.fence(taken_in=2) == 0
    core.handle(Copied())
    assert core.fence(taken_in=2) == 0
    assert core.fence(taken_in=4) == 4


def test_what_comes_late_changes_nothing():
    core = trains()
    before = (core.phase, core.standing)

    for late in (Warm(), Met(), Compared(()), Copied(), Restored(3), Called(2, 0, 1)):
        assert core.handle(late) == []

    assert (core.phase, core.standing) == before
    core.handle(Lost("peer"))
    assert core.handle(Lost("again")) == []
    assert core.handle(Called(2, 1, 3)) == [], "a generation is never entered twice"


@pytest.mark.parametrize("min_members", [1, 2])
def test_under_any_schedule_no_step_is_lost_doubled_or_committed_twice(min_members):
    for seed in range(SCHEDULES // 2):
        world = LiveWorld(seed, nodes=4, min_members=min_members)
        for _ in range(MOVES):
            world.move()
        check(world, seed)
        while sum(not agent.core.leaving for agent in world.alive()) < min_members:
            world.spawn()
        before = progress(world)
        world.calm()
        check(world, seed)
        leaving = [agent.name for agent in world.alive() if agent.core.leaving]
        assert not leaving, f"seed {seed}: {leaving} never left"
        assert progress(world) > before, f"seed {seed}: nobody trains\n{describe(world)}"


def check(world: LiveWorld, seed: int) -> None:
    assert not world.faults, f"seed {seed}: {world.faults[0]}"
    for agent in world.alive():
        state = agent.worker.state
        if state is not None:
            numbers = [step for step, _ in state]
            assert numbers == list(range(1, len(state) + 1)), f"seed {seed}: {numbers}"
    committed = [state for _, state in world.etcd.committed]
    for earlier, later in itertools.pairwise(committed):
        shared = min(len(earlier), len(later))
        assert earlier[:shared] == later[:shared], (
            f"seed {seed}: two histories were committed: ...{earlier[-3:]} and ...{later[-3:]}"
        )
    training = [
        agent.worker
        for agent in world.awake()
        if agent.worker.core.phase is Phase.TRAINING and agent.worker.operation
    ]
    for generation in {worker.core.generation for worker in training}:
        states = {
            worker.state
            for worker in training
            if worker.core.generation == generation
            and worker.count == max_count(training, generation)
        }
        assert len(states) <= 1, f"seed {seed}: members of {generation} differ in the same step"


def max_count(workers: list, generation: int) -> int:
    return max(worker.count for worker in workers if worker.core.generation == generation)


def progress(world: LiveWorld) -> int:
    return sum(len(agent.worker.state or ()) for agent in world.agents)


def describe(world: LiveWorld) -> str:
    lines = [f"current {world.etcd.generation}, members {sorted(world.etcd.members)}"]
    for agent in world.alive():
        worker = agent.worker
        lines.append(
            f"{agent.lease_of}: agent mine={agent.core.mine} wants={agent.core.wants}; worker "
            f"{worker.core.phase} gen {worker.core.generation} op "
            f"{worker.operation and (worker.operation.kind, sorted(worker.operation.given))}"
        )
    return "\n".join(lines)
