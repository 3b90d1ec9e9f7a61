"""How often a large group regroups when nodes join, even if leases of busy agents lapse after its first regroup."""

import pytest

from everstep.elastic.membership.events import Progressed
from everstep.elastic.membership.generations import Generation, GroupLimits
from everstep.elastic.membership.joining import rejoin_grace_seconds, settling_seconds
from tests.everstep.elastic.membership.simulation import TTL, Agent, World

MEMBERS, ARRIVALS = 60, 10
TICK_SECONDS = 0.05
FORMATION_TIMEOUT_SECONDS = 60.0


class LargeGroup:
    """A group with coordinators; its workers take a step immediately, and are ready as soon as they are stopped."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed, MEMBERS, min_members=MEMBERS // 2, coordinators=3)
        world.limits = GroupLimits(
            min_members=MEMBERS // 2,
            max_members=MEMBERS + ARRIVALS,
            join_window_seconds=3.0,
            full_view_members=0,
        )
        for agent in world.agents:
            agent.core.limits = world.limits
        self._thaw_times: dict[str, float] = {}  # time at which a paused agent continues, by name
        self._stepped_generations: dict[str, int] = {}
        self.advance_until_all_train()
        self.pass_time(15)  # so that the next regroup is not soon after this one

    @property
    def number(self) -> int:
        """Number of the current generation."""
        return self.world.etcd.generation.number if self.world.etcd.generation else 0

    def delay(self, agent: Agent, seconds: float) -> None:
        """Pause an agent, as if it waited for a CPU."""
        agent.frozen = True
        self._thaw_times[agent.name] = self.world.now + seconds

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_SECONDS)):
            self._tick()

    def advance_until_all_train(self) -> None:
        """Advance the clock until all nodes train in one group."""
        for _ in range(round(FORMATION_TIMEOUT_SECONDS / TICK_SECONDS)):
            self._tick()
            if all(agent.running_generation == self.number for agent in self.world.alive()):
                return
        raise AssertionError(f"{len(self.world.alive())} nodes are not in generation {self.number}")

    def _tick(self) -> None:
        self.world.advance(TICK_SECONDS)
        for agent in self.world.alive():
            agent.frozen = self._thaw_times.get(agent.name, 0.0) > self.world.now
        for agent in self.world.awake():
            self._act(agent)

    def _act(self, agent: Agent) -> None:
        now = self.world.now
        if agent.running_generation and (agent.stop_requested or agent.regroup_requested):
            agent.worker_ended(now)
        self.world.deliver(agent, len(agent.inbox))
        if agent.running_generation > self._stepped_generations.get(agent.name, 0):
            self._stepped_generations[agent.name] = agent.running_generation
            agent.handle(Progressed(agent.running_generation), now)


def arrive(group: LargeGroup) -> None:
    """Start `ARRIVALS` nodes, spread over one settling time."""
    current = group.world.etcd.generation
    assert current is not None
    for _ in range(ARRIVALS):
        group.world.spawn()
        group.pass_time(settling_seconds(current) / ARRIVALS)


@pytest.mark.parametrize("seed", range(2))
def test_nodes_that_arrive_within_a_settling_time_cost_one_regroup(seed: int) -> None:
    group = LargeGroup(seed)
    initial_number = group.number

    arrive(group)
    group.advance_until_all_train()

    assert group.number == initial_number + 1


@pytest.mark.parametrize("seed", range(2))
def test_leases_that_lapse_soon_after_the_regroup_of_arrivals_cost_one_more(seed: int) -> None:
    group = LargeGroup(seed)
    initial_number = group.number

    arrive(group)
    group.advance_until_all_train()
    for agent in group.world.agents[20:24]:  # one after the other, while the others train
        group.delay(agent, TTL + 2 * TICK_SECONDS)
        group.pass_time(TICK_SECONDS)
    group.pass_time(TTL)
    group.advance_until_all_train()

    assert group.number == initial_number + 2, "four late agents must not cause four regroups"


def test_the_settling_time_grows_with_the_group_up_to_two_seconds() -> None:
    sizes = [3, 10, 110, 1000]
    groups = [Generation(1, tuple(map(str, range(size)))) for size in sizes]

    assert [settling_seconds(group) for group in groups] == [0.0, 0.0, 1.0, 2.0]


def test_a_group_does_not_wait_for_a_machine_that_is_lost_later() -> None:
    group = Generation(1, tuple(map(str, range(MEMBERS))))

    assert rejoin_grace_seconds(group, 3600.0) == 0.0


def test_a_small_group_does_not_wait_for_a_lost_member() -> None:
    assert rejoin_grace_seconds(Generation(1, ("a", "b", "c")), 0.1) == 0.0
