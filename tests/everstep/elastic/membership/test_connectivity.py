"""Nodes that reach etcd but not each other: they never stop the others for long."""

import pytest

from everstep.elastic.membership.connectivity import (
    BLAME_AFTER,
    FIRST_AVOID_SECONDS,
    MAX_BACKOFF_SECONDS,
    MAX_GENERATIONS_WITHOUT_STEP,
    Admission,
    Connectivity,
)
from everstep.elastic.membership.events import (
    Announce,
    Begin,
    GenerationPut,
    GiveUp,
    MemberPut,
    MembershipSnapshot,
    Postpone,
    Probe,
    Probed,
    Progressed,
    Propose,
    Ready,
    Register,
    Registered,
    Tick,
)
from everstep.elastic.membership.generations import (
    Generation,
    GroupLimits,
    Member,
    can_join,
    compatible_members,
)
from everstep.elastic.membership.state_machine import Membership
from tests.everstep.elastic.membership.simulation import World

HOUR = 3600.0


def member(name: str, after: int = 0, *avoids: str) -> Member:
    return Member(name, name, name, after, endpoint=f"{name}:1", avoids=avoids)


def joiner(*training: str) -> Membership:
    """Return an agent without a key that observes a training group."""
    group = Generation(5, training, "s:1")
    core = Membership(GroupLimits(max_members=4))
    core.handle(MembershipSnapshot(tuple(member(name, 4) for name in training), group, 5), 0)
    return core


def training_agent(*names: str) -> Membership:
    """Return the agent `a` in generation 5 of these members, before its first step."""
    core = Membership(GroupLimits(max_members=4))
    core.handle(MembershipSnapshot(tuple(member(n, 4) for n in names), Generation(4, ()), 4), 0)
    core.handle(Registered("a"), 0)
    core.handle(Ready(), 0)
    group = Generation(5, names, "s:1")
    assert core.handle(GenerationPut(group, 5), 0) == [Begin(group, names.index("a"))]
    return core


def test_a_joiner_probes_the_training_members_before_it_registers() -> None:
    core = joiner("b", "c")

    assert core.handle(Ready(), 0) == [Probe((("b", "b:1"), ("c", "c:1")))]
    assert core.handle(Tick(), 1) == [], "one probe at a time"
    assert core.handle(Probed(frozenset("bc")), 1) == [Register(5)]


def test_a_joiner_that_reaches_etcd_but_not_its_peers_does_not_register() -> None:
    core = joiner("b", "c")
    core.handle(Ready(), 0)

    (postponement,) = core.handle(Probed(frozenset("bc"), frozenset("bc")), 1)

    assert isinstance(postponement, Postpone)
    assert "b, c" in postponement.reason
    assert core.wake_at(1) == 1.5
    assert [type(action) for action in core.handle(Tick(), 1.5)] == [Probe]
    assert core.handle(Probed(frozenset("bc")), 2) == [Register(5)], "the network is repaired"


def test_a_joiner_that_never_reaches_its_peers_ends_with_a_reason() -> None:
    core, now, attempts = joiner("b", "c"), 0.0, 0
    actions = core.handle(Ready(), now)
    while not any(isinstance(action, GiveUp) for action in actions):
        assert now < HOUR, "a node that can never train costs money"
        if any(isinstance(action, Probe) for action in actions):
            attempts += 1
            actions = core.handle(Probed(frozenset("bc"), frozenset("bc")), now)
        else:
            now += 1
            actions = core.handle(Tick(), now)

    assert attempts == MAX_GENERATIONS_WITHOUT_STEP
    assert now > 60, "the time between attempts grows"


def test_a_joiner_that_cannot_reach_a_few_members_registers_and_publishes_them() -> None:
    core = joiner("b", "c", "d")
    core.handle(Ready(), 0)

    assert core.handle(Probed(frozenset("bcd"), frozenset("d")), 0) == [Register(5, ("d",))]


@pytest.mark.parametrize(
    ("unreachable", "is_admitted"), [("", True), ("ab", True), ("abc", False), ("abcd", False)]
)
def test_a_joiner_that_reaches_less_than_half_of_the_members_does_not_register(
    unreachable: str, is_admitted: bool
) -> None:
    assert Admission().judge("abcd", unreachable, now=0) == is_admitted


def test_an_unreachable_member_is_left_out_of_the_next_proposal() -> None:
    core = training_agent("a", "b", "cutoff")
    core.handle(MemberPut(member("b", 5, "cutoff")), 1)
    core.handle(MemberPut(member("cutoff", 5, "a", "b")), 1)

    probe = core.handle(Ready(), 1)
    assert [type(action) for action in probe] == [Probe], (
        "it does not know yet which member is unreachable"
    )

    assert core.handle(Probed(frozenset(("b", "cutoff")), frozenset(("cutoff",))), 2) == [
        Announce(5, leaving=False, avoids=("cutoff",)),
        Propose(6, ("a", "b"), 5),
    ]


def test_a_waiting_node_that_cannot_join_does_not_interrupt_a_step() -> None:
    core = training_agent("a", "b")

    assert core.handle(MemberPut(member("cutoff", 0, "b")), 1) == []


def test_a_generation_with_steps_is_left_without_a_probe() -> None:
    core = training_agent("a", "b")
    core.handle(Progressed(5), 1)

    assert core.handle(Ready(), 2) == [Announce(5, leaving=False)], "a probe would cost time"


def test_the_member_that_most_others_avoid_is_left_out() -> None:
    cut_member = member("cut", 0)
    other_members = [member("b", 0, "cut"), member("c", 0, "cut"), member("d", 0)]

    assert [m.identity for m in compatible_members([cut_member, *other_members])] == ["b", "c", "d"]
    assert [m.identity for m in compatible_members([member("x", 0), member("y", 0, "x")])] == ["x"]
    assert not can_join(cut_member, other_members)


def test_an_avoided_joiner_gets_another_attempt_later_and_is_avoided_for_longer_if_it_fails() -> (
    None
):
    """If the probe that ends the avoidance began another one, neither of two nodes would ever train again."""
    connectivity = Connectivity()
    connectivity.record_step({"a", "b"})

    def fail(now: float) -> float:
        for _ in range(BLAME_AFTER):
            connectivity.record_failure({"a", "joiner"})
        connectivity.record_probe("a", ["joiner"], [], now)
        assert connectivity.avoided({"joiner"}) == ("joiner",)
        (retry_at,) = connectivity.next_due({"joiner"})
        return retry_at

    retry_at = fail(now=0)
    assert retry_at == FIRST_AVOID_SECONDS

    connectivity.record_probe("a", ["joiner"], [], retry_at)

    assert connectivity.avoided({"joiner"}) == ()
    assert fail(now=retry_at) == retry_at + 2 * FIRST_AVOID_SECONDS


def test_backoff_grows_to_a_limit() -> None:
    connectivity, seconds = Connectivity(), []
    for _ in range(12):
        connectivity.record_failure({"a", "b"})
        seconds.append(connectivity.backoff_seconds())

    assert seconds[:4] == [0.0, 0.5, 1.0, 2.0]
    assert seconds[-1] == MAX_BACKOFF_SECONDS


@pytest.mark.parametrize("coordinators", [0, 2])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("directions", ["both", "in", "out"])
def test_a_joiner_cut_off_from_its_peers_does_not_stop_a_healthy_run(
    coordinators: int, seed: int, directions: str
) -> None:
    world = World(seed, nodes=3, min_members=1, coordinators=coordinators)
    world.run(20)
    world.kill(world.agents[seed % 3])
    world.run(20)
    groups, step = len(world.etcd.agreed_generations), world.step
    for peer in world.alive():
        if directions != "in":
            world.etcd.cut_links.add(("n4", peer.name))
        if directions != "out":
            world.etcd.cut_links.add((peer.name, "n4"))
    world.spawn()

    world.run(600)

    assert world.step > step + 1000, f"seed {seed}: the healthy nodes train"
    assert len(world.etcd.agreed_generations) == groups, f"seed {seed}: no group is formed with it"


@pytest.mark.parametrize("coordinators", [0, 2])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("start", ["first", "later"])
def test_a_node_with_a_wrong_interface_costs_few_generations_and_ends(
    coordinators: int, seed: int, start: str
) -> None:
    """Its agent is reachable, but its workers are not, which only failed generations show."""
    world = World(seed, nodes=3, min_members=1, coordinators=coordinators)
    misconfigured_agent = world.agents[seed % 3]
    if start == "later":
        world.run(20)
        world.kill(misconfigured_agent)
        world.run(20)
        world.spawn()
        misconfigured_agent = world.agents[-1]
    world.misconfigured_nodes.add(misconfigured_agent.name)
    groups, step = len(world.etcd.agreed_generations), world.step

    world.run(HOUR / 4)

    assert world.step > step + 1_250, f"seed {seed}: the others train"
    assert len(world.etcd.agreed_generations) - groups < 20, f"seed {seed}: no endless regrouping"
    assert misconfigured_agent.give_up_reason, f"seed {seed}: its machine costs money"


@pytest.mark.parametrize("coordinators", [0, 2])
@pytest.mark.parametrize("seed", range(3))
def test_if_no_group_can_work_all_nodes_end_with_a_reason(coordinators: int, seed: int) -> None:
    world = World(seed, nodes=2, min_members=2, coordinators=coordinators)
    world.misconfigured_nodes.update(agent.name for agent in world.agents)

    world.run(HOUR)

    assert len(world.etcd.agreed_generations) == MAX_GENERATIONS_WITHOUT_STEP, (
        "without the limit they would regroup endlessly"
    )
    reasons = [agent.give_up_reason for agent in world.agents]
    assert all("without a step" in reason for reason in reasons), f"seed {seed}: {reasons}"


@pytest.mark.parametrize("coordinators", [0, 2])
@pytest.mark.parametrize("seed", range(5))
def test_two_nodes_that_lose_each_other_continue_training_in_compatible_groups(
    coordinators: int, seed: int
) -> None:
    world = World(seed, nodes=4, min_members=1, coordinators=coordinators)
    world.run(20)
    step = world.step
    first, second = world.agents[0].name, world.agents[1 + seed % 3].name
    world.etcd.cut_links.add((first, second))

    world.run(600)

    assert world.step > step + 800, f"seed {seed}: three of four continue"
    world.etcd.cut_links.clear()
    world.run(700)
    assert world.etcd.generation is not None
    assert len(world.etcd.generation.members) == 4, "the pair trains together again"
