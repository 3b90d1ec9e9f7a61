import pytest

from everstep.elastic.generations import Generation, Member, Rules, neighbour
from everstep.elastic.membership import Membership
from everstep.elastic.membership_events import (
    Announce,
    Begin,
    Bounds,
    Depart,
    Ended,
    GenerationPut,
    LeaseLapsed,
    Leave,
    MemberGone,
    MemberPut,
    Propose,
    Reachable,
    Ready,
    Reclaim,
    Register,
    Registered,
    Regroup,
    Snapshot,
    Stop,
    Superseded,
    Tick,
    Unreachable,
    Withdraw,
    Withdrawn,
)
from tests.unit.elastic.simulation import World

SCHEDULES = 200
MOVES = 200


def member(name: str, after: int = 0, order: int = 0, *, leaving: bool = False) -> Member:
    return Member(name, name, "10.0.0.1", after, leaving, order)


def agent(
    *members: Member, generation: Generation | None = None, most: int = 3, least: int = 1
) -> Membership:
    """The agent `a`, registered, with these members in view."""
    core = Membership(Rules(min_members=least, max_members=most, settle_seconds=3))
    core.handle(Snapshot(members, generation, generation.number if generation else 0), 0)
    core.handle(Registered("a"), 0)
    return core


def trains(*names: str, number: int = 5) -> Membership:
    """The agent `a` in a running generation of these members."""
    group = Generation(number, names, "10.0.0.1:1")
    before = Generation(number - 1, ())
    core = agent(*(member(name, number - 1) for name in names), generation=before)
    core.handle(Ready(), 0)
    assert core.handle(GenerationPut(group, number), 0) == [Begin(group, names.index("a"))]
    return core


def test_an_agent_registers_when_it_first_wants_to_train():
    core = Membership(Rules(max_members=3))

    assert core.handle(Ready(), 0) == [Register(0)]


def test_a_full_group_forms_at_once():
    core = agent(member("a", order=1), member("b", order=2), member("c", order=3))

    actions = core.handle(Ready(), 0)

    assert actions == [Announce(0, leaving=False), Propose(1, ("a", "b", "c"), 0)]


def test_a_first_group_waits_for_latecomers_and_then_goes_without_them():
    core = agent(member("a", order=1), member("b", order=2))

    assert core.handle(Ready(), 0) == [Announce(0, leaving=False)]
    assert core.wake_at(0) == 3
    assert core.handle(Tick(), 2.9) == []
    assert core.handle(Tick(), 3.0) == [Propose(1, ("a", "b"), 0)]


def test_a_group_smaller_than_the_minimum_never_forms():
    core = agent(member("a", order=1), least=2)
    core.handle(Ready(), 0)

    assert core.handle(Tick(), 1000) == []


def test_only_the_first_in_rank_proposes():
    core = agent(member("b", order=1), member("a", order=2), member("c", order=3))

    assert core.handle(Ready(), 0) == [Announce(0, leaving=False)]


def test_survivors_keep_their_ranks_before_those_who_join():
    before = Generation(5, ("lost", "c", "a"))
    core = agent(
        member("a", 5, order=9),
        member("c", 5, order=8),
        member("new", 0, order=1),
        generation=before,
    )

    core.handle(Ready(), 0)

    assert core.handle(MemberGone("c"), 0) == [Propose(6, ("a", "new"), 5)]


def test_a_lost_peer_stops_the_workers_at_once_and_only_once():
    core = trains("a", "b", "c")

    assert core.handle(MemberGone("b"), 1) == [Stop("lost b")]
    assert core.handle(MemberGone("c"), 1) == []


def test_a_peer_that_waits_again_has_lost_its_worker():
    core = trains("a", "b")

    assert core.handle(MemberPut(member("b", after=5)), 1) == [Stop("lost b")]


def test_everybody_s_neighbour_is_the_next_in_rank_that_still_trains():
    group = Generation(5, ("a", "b", "c", "d"))
    members = {name: member(name, 4) for name in group.members} | {"e": member("e", 5)}

    assert [neighbour(name, members, group) for name in "abcd"] == ["b", "c", "d", "a"]
    members["b"] = member("b", 5)
    del members["c"]
    assert [neighbour(name, members, group) for name in "ad"] == ["d", "a"], "b waits, c is gone"
    assert neighbour("e", members, group) is None, "a spare trains with nobody"
    assert neighbour("a", {"a": members["a"]}, group) is None


def test_while_workers_train_the_neighbour_is_a_suspect_only_if_they_wait_for_long():
    core = trains("b", "a", "c")

    assert core.suspects(stalled=False) == []
    assert core.suspects(stalled=True) == ["c"]


def test_between_two_groups_the_first_of_those_who_wait_suspects_those_who_have_not_stopped():
    core = trains("b", "a", "c", "d")
    core.handle(MemberPut(member("c", 5)), 1)
    core.handle(Ready(), 1)
    core.handle(MemberPut(member("a", 5)), 1)

    assert core.suspects(stalled=False) == ["b", "d"]
    core.handle(MemberPut(member("b", 5)), 1)
    assert core.suspects(stalled=False) == [], "b comes first in rank"


def test_who_has_no_key_suspects_nobody():
    core = trains("a", "b")
    core.handle(LeaseLapsed(), 1)

    assert core.suspects(stalled=True) == []


def test_a_joiner_is_taken_in_after_a_step():
    core = trains("a", "b")

    assert core.handle(MemberPut(member("d")), 1) == [Regroup("d joins")]
    assert core.handle(Tick(), 2) == [], "it is said once"


def test_a_spare_that_does_not_fit_disturbs_nobody():
    core = trains("a", "b", "c")

    assert core.handle(MemberPut(member("d")), 1) == []


def test_a_leaving_peer_ends_the_generation_after_a_step():
    core = trains("a", "b")

    assert core.handle(MemberPut(member("b", 4, leaving=True)), 1) == [Regroup("b leaves")]


def test_no_generation_is_proposed_while_a_peer_still_trains_in_the_current_one():
    core = trains("a", "b", "c")
    core.handle(MemberGone("c"), 1)

    assert core.handle(Ready(), 1) == [Announce(5, leaving=False)]
    assert core.handle(MemberPut(member("b", after=5)), 9) == [Propose(6, ("a", "b"), 5)]


def test_a_leaver_that_still_runs_holds_the_next_generation_back_until_it_is_gone():
    core = trains("a", "b")
    core.handle(MemberPut(member("b", 4, leaving=True)), 1)

    assert core.handle(Ready(), 1) == [Announce(5, leaving=False)], "it may still be writing"
    assert core.handle(MemberGone("b"), 2) == [Propose(6, ("a",), 5)]


def test_a_node_told_to_leave_stops_after_a_step_and_departs():
    core = trains("a", "b")

    assert core.handle(Leave(), 1) == [Announce(4, leaving=True)]
    assert core.handle(MemberPut(member("a", 4, leaving=True)), 1) == [Regroup("a leaves")]
    assert core.handle(Ready(), 2) == [Depart()]


def test_a_node_told_to_leave_while_it_waits_departs_at_once():
    core = agent(member("a", order=1), least=2)
    core.handle(Ready(), 0)

    assert core.handle(Leave(), 1) == [Depart()]


def test_a_living_node_told_to_leave_between_two_groups_hands_its_state_on_in_one_more():
    core = trains("a", "b")
    core.rules = Rules(max_members=3, living=True)
    core.handle(MemberGone("b"), 1)
    assert core.handle(Ready(), 1) == [Announce(5, leaving=False), Propose(6, ("a",), 5)]

    assert core.handle(Leave(), 1) == []
    group = Generation(6, ("a",))
    assert core.handle(GenerationPut(group, 6), 1) == [Begin(group, 0), Announce(5, leaving=True)]


def test_living_workers_are_not_stopped_because_a_peer_is_ahead_of_them_in_parting():
    core = trains("a", "b")
    core.rules = Rules(max_members=3, living=True, orderly_seconds=1.0)

    assert core.handle(MemberPut(member("b", after=5)), 10) == [Regroup("b joins")]
    assert core.wake_at(10) == 11
    assert core.handle(Tick(), 11) == [Stop("lost b")], "it may have died in parting, unseen"


def test_a_leaver_s_end_stops_nobody_who_still_finishes_the_same_step():
    core = trains("a", "b")
    core.rules = Rules(max_members=3, living=True, orderly_seconds=1.0)
    core.handle(MemberPut(member("b", 4, leaving=True)), 10)

    assert core.handle(MemberGone("b"), 10) == []
    assert core.handle(Tick(), 11.5) == [Stop("lost b")]


def test_workers_that_died_take_their_member_away_at_once_and_come_back_under_a_new_name():
    core = trains("a", "b")

    assert core.handle(Withdrawn(), 1) == [Withdraw()]
    assert core.handle(Tick(), 2) == [], "nothing is registered before they are ready"
    assert core.handle(Ready(), 9) == [Register(5)]


def test_a_worker_whose_generation_was_replaced_stops():
    core = trains("a", "b")

    actions = core.handle(GenerationPut(Generation(6, ("b",)), 9), 1)

    assert actions == [Stop("generation 6 has replaced 5")]


def test_an_agent_whose_lease_lapsed_asks_for_its_key_back_and_trains_on_if_nobody_went_on():
    core = trains("a", "b")

    assert core.handle(LeaseLapsed(), 1) == [Reclaim("a", 4, leaving=False, revision=5)]
    assert core.handle(Tick(), 1) == [], "it asks once"
    assert core.handle(Registered("a"), 2) == []
    assert core.mine is not None


def test_an_agent_that_the_others_went_on_without_stops_and_comes_back_under_a_new_name():
    core = trains("a", "b")
    core.handle(LeaseLapsed(), 1)

    assert core.handle(Superseded(), 2) == [
        Stop("this node's lease has lapsed: the others go on without it")
    ]
    assert core.handle(Ready(), 3) == [Register(5)]


def test_an_agent_that_finds_its_key_gone_in_a_fresh_view_treats_its_lease_as_lapsed():
    core = trains("a", "b")

    actions = core.handle(Snapshot((member("b", 4),), core.current, 5), 1)

    assert [type(action) for action in actions] == [Reclaim]


def test_a_worker_that_ends_while_its_key_is_put_back_waits_under_that_key():
    core = trains("a", "b")
    core.handle(LeaseLapsed(), 1)

    assert core.handle(Ready(), 1) == []
    assert core.handle(Registered("a"), 2) == [Announce(5, leaving=False)]


def test_where_etcd_has_lost_the_generation_too_there_is_nothing_to_go_back_to():
    core = trains("a", "b")

    assert [type(action) for action in core.handle(Snapshot((), None, 0), 1)] == [Stop]


def test_keys_that_an_outage_of_etcd_took_are_given_time_to_come_back():
    core = trains("a", "b")
    core.handle(Unreachable(), 1)
    core.handle(Reachable(), 30)

    assert core.handle(MemberGone("b"), 30) == []
    assert core.wake_at(30) == 33
    assert core.handle(MemberPut(member("b", 4)), 31) == []
    assert core.handle(Tick(), 33) == []


def test_a_key_that_does_not_come_back_after_an_outage_is_a_loss():
    core = trains("a", "b")
    core.handle(Unreachable(), 1)
    core.handle(Reachable(), 30)
    core.handle(MemberGone("b"), 30)

    assert core.handle(Tick(), 33) == [Stop("lost b")]


def test_a_peer_that_says_itself_that_it_has_stopped_is_believed_during_an_outage():
    core = trains("a", "b")
    core.handle(Unreachable(), 1)

    assert core.handle(MemberPut(member("b", 5)), 2) == [Stop("lost b")]


def test_nobody_proposes_while_others_may_still_put_their_keys_back():
    core = trains("a", "b")
    core.handle(Unreachable(), 1)
    core.handle(MemberGone("b"), 30)
    core.handle(Reachable(), 30)

    assert core.handle(Ready(), 30) == [Announce(5, leaving=False)]
    assert core.handle(Tick(), 33) == [Propose(6, ("a",), 5)]


def test_bounds_that_changed_count_from_the_next_look_on():
    core = agent(member("a"), member("b", order=2), most=1, generation=Generation(4, ()))
    core.handle(Ready(), 0)
    alone = Generation(5, ("a",))
    assert core.handle(GenerationPut(alone, 5), 0) == [Begin(alone, 0)], "b is a spare"

    assert core.handle(Bounds(1, 2), 2) == [Regroup("b joins")]


def test_a_raised_minimum_lets_those_who_train_go_on():
    core = trains("a", "b")

    assert core.handle(Bounds(3, 3), 1) == []


def test_an_old_view_never_brings_an_old_generation_back():
    core = trains("a", "b")

    core.handle(Snapshot((member("a", 4), member("b", 4)), Generation(3, ("a",)), 3), 1)

    assert core.current is not None
    assert core.current.number == 5


def test_numbers_go_on_growing_after_etcd_has_lost_everything():
    core = trains("a", "b")
    core.handle(Snapshot((), None, 0), 1)
    core.handle(Ready(), 1)
    core.handle(MemberPut(member("a2", 5, order=1)), 1)
    core.handle(Registered("a2"), 1)
    core.handle(MemberPut(member("b2", 7, order=2)), 2)

    assert core.handle(Tick(), 99) == [Propose(8, ("a2", "b2"), 0)]


def test_the_end_of_the_run_is_told_once():
    core = trains("a", "b")
    over = Ended(finished=True, reason="done")

    assert core.handle(over, 1) == [over]
    assert core.handle(Tick(), 2) == []


@pytest.mark.parametrize("min_members", [1, 2])
def test_random_schedules_keep_the_invariants_and_end_in_progress(min_members):
    for seed in range(SCHEDULES // 2):
        world = World(seed, nodes=4, min_members=min_members)
        for _ in range(MOVES):
            world.move()
            check_invariants(world, seed)
        while sum(not agent.told_to_go for agent in world.alive()) < min_members:
            world.spawn()
        before = world.step
        world.calm()
        check_invariants(world, seed)
        leaving = [a for a in world.alive() if a.core.leaving]
        assert not leaving, f"seed {seed}: {leaving[0].name} never left"
        assert world.step > before, (
            f"seed {seed}: nobody trains although {len(world.alive())} nodes live"
        )


@pytest.mark.parametrize("seed", range(30))
def test_an_outage_of_etcd_alone_changes_no_group(seed):
    world = World(seed, nodes=4, min_members=1)
    world.calm()
    agreed, step = len(world.etcd.agreed), world.step
    for _ in range(3):
        world.go_away()
        for _ in range(world.random.randint(1, 60)):
            world.advance(0.5)
            world.train()
        assert world.step > step, f"seed {seed}: training goes on"
        step = world.step
        world.come_back()
        for _ in range(60):
            world.deliver(world.random.choice(world.agents), world.random.randint(1, 3))
            world.train()
        world.calm()
        assert world.committed.get(world.step), f"seed {seed}: commits go on"

    assert len(world.etcd.agreed) == agreed, f"seed {seed}: nobody was lost, nobody regroups"


def check_invariants(world: World, seed: int) -> None:
    numbers = [generation.number for generation in world.etcd.agreed]
    assert numbers == sorted(set(numbers)), (
        f"seed {seed}: generation numbers must only grow: {numbers}"
    )
    for generation in world.etcd.agreed:
        assert len(set(generation.members)) == len(generation.members)
        assert world.rules.min_members <= len(generation.members) <= world.rules.max_members
    committed = [world.committed[step] for step in sorted(world.committed)]
    assert committed == sorted(committed), (
        f"seed {seed}: a fenced generation committed a later step"
    )


def test_two_groups_never_train_at_the_same_time():
    for seed in range(SCHEDULES // 2):
        world = World(seed, nodes=4, min_members=1)
        for _ in range(MOVES):
            world.move()
            complete = {
                generation.number
                for generation in world.etcd.agreed
                if all(
                    any(
                        a.running == generation.number and a.lease_of == name for a in world.awake()
                    )
                    for name in generation.members
                )
            }
            assert len(complete) <= 1, f"seed {seed}: generations {complete} could both take a step"
