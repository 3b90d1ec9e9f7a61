"""A large run: a few coordinators watch all members and instruct the others."""

from dataclasses import replace

import pytest

from everstep.elastic.membership.events import (
    Announce,
    Begin,
    Coordinate,
    CoordinatorPut,
    CoordinatorRemoved,
    GenerationPut,
    Instruct,
    Instruction,
    MemberPut,
    MemberRemoved,
    MembershipSnapshot,
    Probe,
    Propose,
    Ready,
    Register,
    Registered,
    Regroup,
    Resign,
    Stop,
    Tick,
)
from everstep.elastic.membership.generations import Generation, GroupLimits, Member
from everstep.elastic.membership.state_machine import Membership
from tests.everstep.elastic.membership.simulation import World

LIMITS = GroupLimits(
    max_members=100,
    full_view_members=0,
    coordinators=2,
    graceful_leave_lag_seconds=0.0,
    join_window_seconds=3,
)
NAMES = ("a", "b", "c", "d")
GROUP = Generation(
    5, NAMES, "10.0.0.1:1", endpoints=tuple(f"{name}:1" for name in NAMES), orders=(1, 2, 3, 4)
)


def member(name: str, after: int = 4, order: int = 0) -> Member:
    return Member(name, name, name, after, order=order, endpoint=f"{name}:1")


def follower(*coordinators: str) -> Membership:
    """Return the agent `d`, which trains in generation 5 and watches no members."""
    core = Membership(LIMITS)
    coordinator_members = tuple(
        member(name, order=order) for order, name in enumerate(coordinators, 1)
    )
    previous_generation = Generation(4, ())
    core.handle(
        MembershipSnapshot(
            (), previous_generation, 4, complete=False, coordinators=coordinator_members
        ),
        0,
    )
    core.handle(Registered("d"), 0)
    core.handle(Ready(), 0)
    assert core.handle(GenerationPut(GROUP, 5), 0) == [Begin(GROUP, 3)]
    return core


def coordinator() -> Membership:
    """Return the agent `a`, a coordinator that trains in generation 5 and watches all members."""
    core = Membership(LIMITS)
    members = tuple(member(name, order=order) for order, name in enumerate(NAMES))
    coordinator_members = (member("a", order=1), member("b", order=2))
    core.handle(
        MembershipSnapshot(members, Generation(4, ()), 4, coordinators=coordinator_members), 0
    )
    core.handle(Registered("a"), 0)
    core.handle(Ready(), 0)
    actions = core.handle(GenerationPut(GROUP, 5), 0)
    assert Begin(GROUP, 0) in actions
    return core


def test_only_coordinators_of_a_large_run_watch_all_members() -> None:
    assert not follower("a", "b").watches_all
    assert coordinator().watches_all
    assert Membership(replace(LIMITS, full_view_members=100)).watches_all, "a small run"


def test_a_coordinator_instructs_the_others_to_stop_and_waits_for_its_own_instruction() -> None:
    core = coordinator()

    assert core.handle(MemberRemoved("c"), 1) == [Instruct("stop", 5, "lost c", 5, 0)]
    assert core.handle(Tick(), 2) == [], "it is requested once"
    assert core.handle(Instruction("stop", 5, "lost c", 9), 3) == [Stop("lost c")]


def test_an_instruction_that_another_one_replaced_is_requested_again() -> None:
    core = coordinator()
    core.handle(MemberRemoved("c"), 1)

    assert core.handle(Instruction("stop", 4, "lost z", 9), 2) == [
        Instruct("stop", 5, "lost c", 5, 9)
    ], "a late request overwrote it with an instruction for an earlier generation"


def test_joiners_and_leavers_end_a_generation_after_a_step() -> None:
    core = coordinator()

    assert core.handle(MemberPut(member("e")), 1) == [Instruct("regroup", 5, "e joins", 5, 0)]
    assert follower("a", "b").handle(Instruction("regroup", 5, "e joins", 9), 1) == [
        Regroup("e joins")
    ]
    leaver = replace(member("c"), leaving=True)
    assert coordinator().handle(MemberPut(leaver), 1) == [Instruct("regroup", 5, "c leaves", 5, 0)]


def test_a_follower_obeys_instructions_for_its_own_generation_only() -> None:
    core = follower("a", "b")

    assert core.handle(Instruction("stop", 4, "lost z", 8), 1) == []
    assert core.handle(Instruction("stop", 6, "lost z", 9), 1) == []
    assert core.handle(Instruction("stop", 5, "lost c", 10), 1) == [Stop("lost c")]
    assert core.handle(Instruction("stop", 5, "lost c", 10), 1) == [], "it is a repetition"


def test_a_fence_stops_the_followers_without_an_instruction() -> None:
    fenced_group = replace(GROUP, fenced=("c",))

    assert follower("a", "b").handle(GenerationPut(fenced_group, 6), 1) == [Stop("lost c")]


def test_a_fenced_follower_stops_and_loses_its_registration() -> None:
    core = follower("a", "b")

    (stop,) = core.handle(GenerationPut(replace(GROUP, fenced=("d",)), 6), 1)

    assert isinstance(stop, Stop)
    assert "suspected" in stop.reason
    assert core.identity is None


def test_the_generation_describes_its_members_for_the_heartbeats_of_followers() -> None:
    core = follower("a", "b")

    assert {name: (m.endpoint, m.order) for name, m in core.members.items()} == {
        name: (f"{name}:1", order) for order, name in enumerate(NAMES, 1)
    }
    core.handle(GenerationPut(replace(GROUP, fenced=("c",)), 6), 1)
    assert "c" not in core.members


def test_a_follower_proposes_nothing_and_probes_no_lease() -> None:
    core = follower("a", "b")
    core.handle(Instruction("stop", 5, "lost c", 10), 1)

    assert core.handle(Ready(), 1) == [Announce(5, leaving=False)]
    assert core.handle(Tick(), 1000) == []
    assert core.suspects(stalled=True) == core.suspects(stalled=False) == []


def test_the_first_coordinator_proposes_itself_as_rank_0_with_all_endpoints() -> None:
    core = coordinator()
    core.handle_all([MemberRemoved("c"), Instruction("stop", 5, "lost c", 9)], 1)
    core.handle_all([MemberPut(member("b", 5, 1)), MemberPut(member("d", 5, 3))], 1)

    (_, proposal) = core.handle(Ready(), 1)

    assert proposal == Propose(
        6, ("a", "b", "d"), 5, endpoints=("a:1", "b:1", "d:1"), orders=(0, 1, 3)
    )


def test_the_coordinators_rank_first_so_that_one_of_them_can_propose() -> None:
    core = Membership(LIMITS)
    members = (member("x", 0, 1), member("y", 0, 2), member("a", 0, 3))
    coordinator_members = (member("a", order=4),)
    core.handle(MembershipSnapshot(members, None, 0, coordinators=coordinator_members), 0)
    core.handle(Registered("a"), 0)
    core.handle(Ready(), 0)

    proposals = [action for action in core.handle(Tick(), 3) if isinstance(action, Propose)]

    assert [proposal.members for proposal in proposals] == [("a", "x", "y")]


def test_after_the_loss_of_a_coordinator_the_followers_claim_its_role_in_turn_by_rank() -> None:
    core = follower("a", "b")
    assert core.handle(Tick(), 1) == []

    assert core.handle(CoordinatorRemoved("a"), 2) == [], "followers of a lower rank claim first"
    assert core.wake_at(2) == pytest.approx(3.5)
    assert core.handle(Tick(), 3.6) == [Coordinate()]
    assert core.handle(Tick(), 4) == [], "it claims once"


def test_a_follower_does_not_claim_the_role_after_another_one_did() -> None:
    core = follower("a", "b")
    core.handle(CoordinatorRemoved("a"), 2)
    core.handle(CoordinatorPut(member("c", order=9)), 3)

    assert core.handle(Tick(), 9) == []


def test_if_there_are_too_many_coordinators_the_last_ones_resign() -> None:
    core = follower("a", "b")

    assert core.handle(CoordinatorPut(member("d", order=9)), 3) == [Resign()]
    assert not core.watches_all
    assert core.handle(Tick(), 4) == [], "it resigns once"


def test_a_joiner_probes_the_coordinators_before_it_registers() -> None:
    core = Membership(LIMITS)
    coordinator_members = (member("a", order=1), member("b", order=2))
    core.handle(
        MembershipSnapshot((), GROUP, 5, complete=False, coordinators=coordinator_members), 0
    )

    assert core.handle(Ready(), 0) == [Probe((("a", "a:1"), ("b", "b:1")))]


def test_without_coordinators_a_joiner_registers_without_a_probe() -> None:
    core = Membership(LIMITS)
    core.handle(MembershipSnapshot((), GROUP, 5, complete=False), 0)

    assert core.handle(Ready(), 0) == [Register(5)], "all members of the generation may be lost"


def test_a_run_that_becomes_small_stops_no_group_before_the_members_are_read() -> None:
    core = follower("a", "b")
    core.limits = replace(LIMITS, full_view_members=200)

    assert core.watches_all
    assert core.handle(Tick(), 1) == [], "the members are not known yet"
    members = tuple(member(name) for name in NAMES if name != "c")
    assert core.handle(MembershipSnapshot(members, GROUP, 5), 2) == [Stop("lost c")]


@pytest.mark.parametrize("seed", range(10))
def test_a_run_that_loses_all_coordinators_together_trains_again(seed: int) -> None:
    world = World(seed, nodes=5, min_members=1, coordinators=2)
    world.end_faults()
    for agent in list(world.alive()):
        if agent.lease_identity in world.etcd.coordinators:
            world.kill(agent)
    step = world.step

    world.end_faults()

    assert world.step > step, f"seed {seed}: the others claim the role"
    assert len(world.etcd.coordinators) == 2
