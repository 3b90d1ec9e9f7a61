"""False and true suspicions under random schedules: they may end a group, but no sample or state is lost."""

import pytest

from tests.effort import seeds
from tests.everstep.elastic.recovery.recovery_simulation import LiveAgent
from tests.everstep.elastic.recovery.suspicion_faults import FenceRequest, SuspicionWorld
from tests.everstep.elastic.recovery.test_state_machine import check, play, progress

SCHEDULES = 40


@pytest.mark.schedules
@pytest.mark.parametrize("coordinators", [0, 2])
@pytest.mark.parametrize("min_members", [1, 2])
def test_false_suspicions_break_no_invariant(min_members: int, coordinators: int) -> None:
    for seed in seeds(SCHEDULES // (2 if coordinators else 1)):
        play(seed, min_members, SuspicionWorld, coordinators)


def training_world(seed: int, nodes: int = 3) -> SuspicionWorld:
    """Return a group that trains and whose members exchange heartbeats."""
    world = SuspicionWorld(seed, nodes=nodes, min_members=1)
    world.end_faults()
    assert progress(world) > 0
    return world


def run(world: SuspicionWorld, seconds: float) -> None:
    """Continue without further faults; agents and workers react within a tenth of a second."""
    end_at = world.now + seconds
    while world.now < end_at:
        world.advance(0.1)
        for agent in world.awake():
            world.deliver(agent, len(agent.inbox))
            for _ in range(4):
                world.work(agent.worker)


def identities(world: SuspicionWorld, *agents: LiveAgent) -> set[str]:
    return {agent.lease_identity for agent in agents}


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fault", ["vanished", "frozen"])
def test_the_others_train_again_within_a_second_of_a_silent_loss(seed: int, fault: str) -> None:
    world = training_world(seed)
    lost_agent = next(a for a in world.alive() if a.worker.core.rank == seed % 3)
    survivors = [agent for agent in world.alive() if agent is not lost_agent]
    generation_count, initial_progress = len(world.etcd.agreed_generations), progress(world)
    if fault == "vanished":
        world.kill(lost_agent)
    else:
        lost_agent.frozen = True

    run(world, 1.0)

    assert len(world.etcd.agreed_generations) > generation_count, (
        f"seed {seed}: its lease is valid for two seconds"
    )
    assert set(world.etcd.agreed_generations[-1].members) == identities(world, *survivors)
    assert progress(world) > initial_progress
    check(world, seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("seconds", [0.5, 0.6, 0.7, 1.2])
def test_a_node_that_thaws_about_when_it_is_fenced_trains_again_immediately(
    seed: int, seconds: float
) -> None:
    world = training_world(seed)
    frozen_agent = world.alive()[seed % 3]
    frozen_agent.frozen = True
    run(world, seconds)

    frozen_agent.frozen = False
    run(world, 1.0)

    generation = world.etcd.generation
    assert generation is not None
    assert frozen_agent.lease_identity in generation.members, f"seed {seed}: {generation}"
    initial_progress = progress(world)
    run(world, 0.5)
    assert progress(world) > initial_progress
    check(world, seed)


def test_without_faults_no_member_is_suspected() -> None:
    world = training_world(0, nodes=4)

    run(world, 60)

    assert not world.fences


def test_a_fence_from_an_earlier_generation_fences_no_member_of_a_later_one() -> None:
    world = training_world(0)
    fencer, victim = world.alive()[0], world.alive()[1]
    detector = world.detectors[fencer.name]
    registrations = tuple(
        (name, world.etcd.members[name].order) for name in identities(world, fencer, victim)
    )
    revision = world.etcd.generation_revision
    world.kill(world.alive()[2])
    run(world, 1.0)

    detector.request = FenceRequest(revision, registrations, (victim.lease_identity,))
    run(world, 1.0)

    assert world.detectors[fencer.name].request is None, "the fence reached etcd"
    assert victim.lease_identity not in dict(world.fences)


def test_the_schedules_fence_living_and_dead_members() -> None:
    worlds = [SuspicionWorld(seed, nodes=4, min_members=1) for seed in range(100)]
    for world in worlds:
        for _ in range(200):
            world.move()

    liveness = [was_alive for world in worlds for _, was_alive in world.fences]
    assert liveness.count(True) > 3, "otherwise false suspicions are not tested"
    assert liveness.count(False) > 3, "otherwise true suspicions are not tested"
