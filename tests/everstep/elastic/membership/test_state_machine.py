"""The rules by which agents form groups, tested one by one and under random schedules."""

import pytest

from everstep.elastic.membership.events import (
    Action,
    Announce,
    Begin,
    BoundsChanged,
    Depart,
    EarlierRunEnded,
    Event,
    Evict,
    GenerationPut,
    LeaseLapsed,
    Leave,
    MemberPut,
    MemberRemoved,
    MembershipSnapshot,
    Propose,
    Reachable,
    Ready,
    Reclaim,
    Register,
    Registered,
    Regroup,
    Resumed,
    RunEnded,
    Stop,
    Superseded,
    Tick,
    Unreachable,
    UnreadableKeys,
    Withdraw,
    Withdrawn,
)
from everstep.elastic.membership.generations import (
    MAX_STALL_PROBERS,
    Generation,
    GroupLimits,
    Member,
    next_training_member,
    probes_stalls,
)
from everstep.elastic.membership.late_members import RETURN_SECONDS
from everstep.elastic.membership.shortage import NEW_RUN_SECONDS
from everstep.elastic.membership.state_machine import Membership
from tests.effort import seeds
from tests.everstep.elastic.membership.simulation import World

SCHEDULES = 180
MOVES = 200
ONLY_COPY = Ready(may_be_only_copy=True)
COORDINATORS = [0, 1, 2]  # 0: each agent watches all members


def schedules(coordinators: int, divisor: int) -> range:
    """Return `SCHEDULES / divisor` seeds, or a third of that for runs with coordinators."""
    return seeds(SCHEDULES // divisor // (3 if coordinators else 1))


def member(name: str, after: int = 0, order: int = 0, *, leaving: bool = False) -> Member:
    return Member(name, name, "10.0.0.1", after, leaving, order)


def agent(
    *members: Member,
    generation: Generation | None = None,
    max_members: int = 3,
    min_members: int = 1,
) -> Membership:
    """Return the agent `a`, registered, that observes these members."""
    core = Membership(
        GroupLimits(
            min_members=min_members,
            max_members=max_members,
            join_window_seconds=3,
            graceful_leave_lag_seconds=0.0,
        )
    )
    core.handle(MembershipSnapshot(members, generation, generation.number if generation else 0), 0)
    core.handle(Registered("a"), 0)
    return core


def training_agent(*names: str, number: int = 5) -> Membership:
    """Return the agent `a` in a running generation of these members."""
    group = Generation(number, names, "10.0.0.1:1")
    previous_generation = Generation(number - 1, ())
    core = agent(*(member(name, number - 1) for name in names), generation=previous_generation)
    core.handle(Ready(), 0)
    assert core.handle(GenerationPut(group, number), 0) == [Begin(group, names.index("a"))]
    return core


def check_invariants(world: World, seed: int) -> None:
    numbers = [generation.number for generation in world.etcd.agreed_generations]
    assert numbers == sorted(set(numbers)), (
        f"seed {seed}: generation numbers must only grow: {numbers}"
    )
    for generation in world.etcd.agreed_generations:
        assert len(set(generation.members)) == len(generation.members)
        assert world.limits.min_members <= len(generation.members) <= world.limits.max_members
    committing_generations = [world.committed[step] for step in sorted(world.committed)]
    assert committing_generations == sorted(committing_generations), (
        f"seed {seed}: a fenced generation committed a later step"
    )


def test_an_agent_registers_when_it_is_first_ready_to_train() -> None:
    core = Membership(GroupLimits(max_members=3))

    assert core.handle(Ready(), 0) == [Register(0)]


def test_a_full_group_forms_immediately() -> None:
    core = agent(member("a", order=1), member("b", order=2), member("c", order=3))

    actions = core.handle(Ready(), 0)

    assert actions == [Announce(0, leaving=False), Propose(1, ("a", "b", "c"), 0)]


def test_the_first_group_waits_for_latecomers_up_to_a_timeout() -> None:
    core = agent(member("a", order=1), member("b", order=2))

    assert core.handle(Ready(), 0) == [Announce(0, leaving=False)]
    assert core.wake_at(0) == 3
    assert core.handle(Tick(), 2.9) == []
    assert core.handle(Tick(), 3.0) == [Propose(1, ("a", "b"), 0)]


def test_a_group_smaller_than_the_minimum_never_forms() -> None:
    core = agent(member("a", order=1), min_members=2)
    core.handle(Ready(), 0)

    assert core.handle(Tick(), 1000) == []


def test_only_the_first_in_rank_proposes() -> None:
    core = agent(member("b", order=1), member("a", order=2), member("c", order=3))

    assert core.handle(Ready(), 0) == [Announce(0, leaving=False)]


def test_survivors_are_ranked_before_joiners() -> None:
    previous_generation = Generation(5, ("lost", "c", "a"))
    core = agent(
        member("a", 5, order=9),
        member("c", 5, order=8),
        member("new", 0, order=1),
        generation=previous_generation,
    )

    core.handle(Ready(), 0)

    assert core.handle(MemberRemoved("c"), 0) == [Propose(6, ("a", "new"), 5)]


def test_a_lost_peer_stops_the_workers_immediately_and_once() -> None:
    core = training_agent("a", "b", "c")

    assert core.handle(MemberRemoved("b"), 1) == [Stop("lost b")]
    assert core.handle(MemberRemoved("c"), 1) == []


def test_no_regroup_follows_a_stop() -> None:
    core = training_agent("a", "b")
    assert core.handle(MemberRemoved("b"), 1) == [Stop("lost b")]

    later_actions = core.handle_all([Unreachable(), MemberPut(member("c", after=5))], 1.1)

    assert not any(isinstance(action, Regroup) for action in later_actions), "their group is broken"


def test_a_peer_that_waits_again_has_lost_its_worker() -> None:
    core = training_agent("a", "b")

    assert core.handle(MemberPut(member("b", after=5)), 1) == [Stop("lost b")]


def test_the_neighbor_of_a_member_is_the_next_in_rank_that_still_trains() -> None:
    group = Generation(5, ("a", "b", "c", "d"))
    members = {name: member(name, 4) for name in group.members} | {"e": member("e", 5)}

    assert [next_training_member(name, members, group) for name in "abcd"] == ["b", "c", "d", "a"]
    members["b"] = member("b", 5)
    del members["c"]
    assert [next_training_member(name, members, group) for name in "ad"] == ["d", "a"], (
        "b waits, c is gone"
    )
    assert next_training_member("e", members, group) is None, "a spare trains with no other member"
    assert next_training_member("a", {"a": members["a"]}, group) is None


def test_the_neighbor_is_a_suspect_only_while_workers_wait_unusually_long() -> None:
    core = training_agent("b", "a", "c")

    assert core.suspects(stalled=False) == []
    assert core.suspects(stalled=True) == ["c"]


def test_between_two_groups_the_first_waiting_member_suspects_those_that_have_not_stopped() -> None:
    core = training_agent("b", "a", "c", "d")
    core.handle(MemberPut(member("c", 5)), 1)
    core.handle(Ready(), 1)
    core.handle(MemberPut(member("a", 5)), 1)

    assert core.suspects(stalled=False) == ["b", "d"]
    core.handle(MemberPut(member("b", 5)), 1)
    assert core.suspects(stalled=False) == [], "b comes first in rank"


def test_an_agent_without_a_key_suspects_no_peer() -> None:
    core = training_agent("a", "b")
    core.handle(LeaseLapsed(), 1)

    assert core.suspects(stalled=True) == []


def test_a_joiner_is_admitted_after_a_step() -> None:
    core = training_agent("a", "b")

    assert core.handle(MemberPut(member("d")), 1) == [Regroup("d joins")]
    assert core.handle(Tick(), 2) == [], "it is reported once"


def test_a_spare_that_does_not_fit_interrupts_no_member() -> None:
    core = training_agent("a", "b", "c")

    assert core.handle(MemberPut(member("d")), 1) == []


def test_nodes_that_arrive_one_after_the_other_are_admitted_together() -> None:
    names = [f"n{number}" for number in range(99)]
    core = training_agent("a", *names)
    # The join interval of this generation stays 3 s.
    core.limits = GroupLimits(max_members=200, full_view_members=200)
    actions = [
        core.handle(MemberPut(member(f"new{number}", order=number)), 0.1 * number)
        for number in range(1, 29)
    ]

    assert not any(actions), "the group has just admitted joiners"
    assert core.wake_at(2.8) == 3
    regroups = core.handle(Tick(), 3)
    assert [type(action) for action in regroups] == [Regroup], "one for all of them"


def test_the_first_joiner_of_a_small_group_hardly_waits() -> None:
    core = training_agent("a", "b")

    assert core.handle(MemberPut(member("d")), 0.1) == [Regroup("d joins")]


def test_in_a_large_group_few_agents_probe_leases_when_it_stalls() -> None:
    group = Generation(5, tuple(f"n{number}" for number in range(1000)))

    assert 0 < sum(probes_stalls(name, group) for name in group.members) <= MAX_STALL_PROBERS
    small_group = Generation(5, ("a", "b", "c"))
    assert all(probes_stalls(name, small_group) for name in small_group.members), (
        "a loss is noticed immediately"
    )


def test_a_leaving_peer_ends_the_generation_after_a_step() -> None:
    core = training_agent("a", "b")

    assert core.handle(MemberPut(member("b", 4, leaving=True)), 1) == [Regroup("b leaves")]


def test_no_generation_is_proposed_while_a_peer_still_trains_in_the_current_one() -> None:
    core = training_agent("a", "b", "c")
    core.handle(MemberRemoved("c"), 1)

    assert core.handle(Ready(), 1) == [Announce(5, leaving=False)]
    assert core.handle(MemberPut(member("b", after=5)), 9) == [Propose(6, ("a", "b"), 5)]


def test_an_unresponsive_member_of_a_broken_generation_is_evicted_after_a_timeout() -> None:
    names = [f"n{number}" for number in range(99)]
    core = training_agent("a", *names)
    core.handle_all([MemberPut(member(name, 5)) for name in names[:-1]], 1)
    assert core.handle(Ready(), 1) == [Announce(5, leaving=False)]

    assert core.wake_at(1) == 31
    assert core.handle(Tick(), 30) == [], "its workers may need that long to stop"
    assert core.handle(Tick(), 31) == [Evict("n98")]
    assert core.handle(Tick(), 40) == []
    assert core.handle(Tick(), 61) == [Evict("n98")], "the first attempt may have failed"
    assert core.handle(MemberRemoved("n98"), 62) == [Propose(6, ("a", "n0", "n1"), 5)]


def test_a_member_that_stopped_last_in_one_generation_has_the_full_time_to_stop_in_the_next() -> (
    None
):
    core = training_agent("a", "b")
    core.handle(Ready(), 1)  # b still trains
    assert core.handle(MemberPut(member("b", 5)), 1.1) == [Propose(6, ("a", "b"), 5)]
    group = Generation(6, ("a", "b"))
    assert core.handle(GenerationPut(group, 6), 1.2) == [Begin(group, 0)]

    core.handle(MemberPut(member("c", 6, order=9)), 100)

    assert core.handle(Ready(), 100.1) == [Announce(6, leaving=False)], "b is asked to stop now"
    assert core.handle(Tick(), 130) == []
    assert core.handle(Tick(), 130.2) == [Evict("b")]


def test_a_leaver_that_writes_its_last_checkpoint_is_given_more_time() -> None:
    core = training_agent("a", "b")
    core.handle(MemberPut(member("b", 4, leaving=True)), 1)
    core.handle(Ready(), 1)

    assert core.handle(Tick(), 100) == []
    assert core.handle(Tick(), 121) == [Evict("b")]


def test_a_joiner_never_breaks_a_complete_generation() -> None:
    core = agent(member("a", order=9), member("b", 4, order=1), generation=Generation(5, ("b",)))
    core.handle(Ready(), 0)

    assert core.handle(Tick(), 1000) == [], "a step may take arbitrarily long"


@pytest.mark.parametrize("coordinators", [0, 2])
@pytest.mark.parametrize("seed", range(20))
def test_an_unresponsive_member_stops_the_others_for_at_most_a_minute(
    coordinators: int, seed: int
) -> None:
    world = World(seed, nodes=4, min_members=1, coordinators=coordinators)
    world.end_faults()
    world.agents[seed % 4].stuck = True
    world.agents[(seed + 1) % 4].worker_ended(world.now)
    step = world.step

    world.run(60)

    assert world.step > step, (
        f"seed {seed}: an unresponsive member with a live lease would block all"
    )


def test_the_next_generation_waits_until_a_leaver_has_ended() -> None:
    core = training_agent("a", "b")
    core.handle(MemberPut(member("b", 4, leaving=True)), 1)

    assert core.handle(Ready(), 1) == [Announce(5, leaving=False)], "it may still be writing"
    assert core.handle(MemberRemoved("b"), 2) == [Propose(6, ("a",), 5)]


def test_a_node_that_is_drained_stops_after_a_step_and_departs() -> None:
    core = training_agent("a", "b")

    assert core.handle(Leave(), 1) == [Announce(4, leaving=True)]
    assert core.handle(MemberPut(member("a", 4, leaving=True)), 1) == [Regroup("a leaves")]
    assert core.handle(Ready(), 2) == [Depart()]


def test_a_node_whose_state_may_be_the_only_copy_takes_part_in_one_more_group() -> None:
    core = training_agent("a", "b")
    core.handle(Leave(), 1)
    core.handle(MemberPut(member("a", 4, leaving=True)), 1)

    assert core.handle(ONLY_COPY, 2) == [Announce(5, leaving=False)]
    assert core.handle(Ready(), 3) == [Depart()], "a checkpoint of the state is committed now"


def test_a_node_that_is_drained_while_others_keep_its_state_departs_immediately() -> None:
    core = training_agent("a", "b")
    core.handle(Ready(), 1)

    assert core.handle(Leave(), 2) == [Depart()]


def test_a_node_that_is_drained_while_it_waits_departs_immediately() -> None:
    core = agent(member("a", order=1), min_members=2)
    core.handle(Ready(), 0)

    assert core.handle(Leave(), 1) == [Depart()]


def test_a_node_that_is_drained_between_two_groups_passes_its_state_on_in_one_more_group() -> None:
    core = training_agent("a", "b")
    core.limits = GroupLimits(max_members=3, graceful_leave_lag_seconds=0.0)
    core.handle(MemberRemoved("b"), 1)
    assert core.handle(ONLY_COPY, 1) == [Announce(5, leaving=False), Propose(6, ("a",), 5)]

    assert core.handle(Leave(), 1) == []
    group = Generation(6, ("a",))
    assert core.handle(GenerationPut(group, 6), 1) == [Begin(group, 0), Announce(5, leaving=True)]


def test_a_node_that_is_drained_before_etcd_loses_the_group_passes_its_state_on_in_one_more_group() -> (
    None
):
    core = training_agent("a", "b")
    core.limits = GroupLimits(max_members=2)
    core.handle(Leave(), 1)
    wiped = MembershipSnapshot((), None, 0, store_was_replaced=True)
    assert core.handle(wiped, 2) == [Stop("etcd has no generation")]

    assert core.handle(Ready(), 3) == [Register(5)], (
        "all nodes may leave, and none has saved the state"
    )
    core.handle_all([Registered("a"), MemberPut(member("a", 5)), MemberPut(member("c", 0, 9))], 4)
    group = Generation(6, ("a", "c"))
    assert core.handle(GenerationPut(group, 6), 5) == [Begin(group, 0), Announce(5, leaving=True)]
    core.handle(MemberPut(member("a", 5, leaving=True)), 5)
    assert core.handle(Ready(), 6) == [Depart()], "the group has the state now"


def test_a_node_that_is_drained_after_etcd_has_lost_the_group_keeps_its_state_for_the_next() -> (
    None
):
    core = training_agent("a", "b")
    core.handle(MembershipSnapshot((), None, 0, store_was_replaced=True), 1)
    assert core.handle(ONLY_COPY, 2) == [Register(5)]

    assert core.handle(Leave(), 3) == []


def test_a_drained_node_without_a_key_departs_only_if_the_others_continue() -> None:
    core = training_agent("a", "b")
    core.handle(Leave(), 1)
    core.handle(LeaseLapsed(), 1)
    core.handle(Superseded(), 2)

    assert core.handle(Ready(), 3) == [Register(5)], "etcd may have been wiped"

    core = training_agent("a", "b")
    core.handle(Leave(), 1)
    core.handle(LeaseLapsed(), 1)
    core.handle(GenerationPut(Generation(6, ("b",)), 9), 2)
    assert core.handle(Ready(), 3) == [Depart()]


def test_live_workers_are_not_stopped_immediately_when_a_peer_leaves_the_group_before_them() -> (
    None
):
    core = training_agent("a", "b")
    core.limits = GroupLimits(max_members=3, graceful_leave_lag_seconds=1.0)

    assert core.handle(MemberPut(member("b", after=5)), 10) == [Regroup("b joins")]
    assert core.wake_at(10) == 11
    assert core.handle(Tick(), 11) == [Stop("lost b")], (
        "it may have crashed while it left, without notice"
    )


def test_the_end_of_a_leaver_does_not_stop_members_that_finish_the_same_step() -> None:
    core = training_agent("a", "b")
    core.limits = GroupLimits(max_members=3, graceful_leave_lag_seconds=1.0)
    core.handle(MemberPut(member("b", 4, leaving=True)), 10)

    assert core.handle(MemberRemoved("b"), 10) == []
    assert core.handle(Tick(), 11.5) == [Stop("lost b")]


def test_a_node_whose_workers_crash_withdraws_immediately_and_registers_again() -> None:
    core = training_agent("a", "b")

    assert core.handle(Withdrawn(), 1) == [Withdraw()]
    assert core.handle(Tick(), 2) == [], "the member is not registered before its workers are ready"
    assert core.handle(Ready(), 9) == [Register(5)]


def test_a_worker_whose_generation_was_replaced_stops() -> None:
    core = training_agent("a", "b")

    actions = core.handle(GenerationPut(Generation(6, ("b",)), 9), 1)

    assert actions == [Stop("generation 6 has replaced 5")]


def test_a_frozen_agent_does_not_mistake_a_new_generation_with_its_number_for_its_own() -> None:
    core = training_agent("a", "b")
    other_members = (member("c", order=1), member("d", order=2))

    snapshot = MembershipSnapshot(
        other_members, Generation(5, ("c", "d")), 9, store_was_replaced=True
    )

    assert core.handle(snapshot, 1) == [Stop("another generation 5 has replaced this one")]
    assert core.handle(Ready(), 2) == [Register(5)]


def test_an_agent_with_a_lapsed_lease_restores_its_key_and_continues_if_no_peer_regrouped() -> None:
    core = training_agent("a", "b")

    assert core.handle(LeaseLapsed(), 1) == [Reclaim("a", 4, leaving=False, revision=5)]
    assert core.handle(Tick(), 1) == [], "it requests the key once"
    assert core.handle(Registered("a"), 2) == []
    assert core.own_generation is not None


def test_an_agent_that_is_not_in_the_next_group_of_the_others_stops_and_registers_again() -> None:
    core = training_agent("a", "b")
    core.handle(LeaseLapsed(), 1)

    assert core.handle(Superseded(), 2) == [
        Stop("this node's lease has lapsed: the others continue without it")
    ]
    assert core.handle(Ready(), 3) == [Register(5)]


def fence(*names: str) -> list[MemberRemoved | GenerationPut]:
    """Return the events of a fence in generation 5 of a, b and c."""
    group = Generation(5, ("a", "b", "c"), "10.0.0.1:1", fenced=names)
    return [*map(MemberRemoved, names), GenerationPut(group, 6)]


def test_the_others_wait_for_a_fenced_member_that_is_alive_and_continue_with_it() -> None:
    core = training_agent("a", "b", "c")
    assert core.handle_all(fence("c"), 1.0) == [Stop("lost c")]
    core.handle_all([Resumed("c"), Ready(), MemberPut(member("a", 5))], 1.05)

    assert core.handle(MemberPut(member("b", 5)), 1.1) == [], "c registers soon"
    assert core.wake_at(1.1) == 1.05 + RETURN_SECONDS
    (proposal,) = core.handle(MemberPut(Member("c-2", "c", "10.0.0.1", 5, order=7)), 1.2)
    assert proposal == Propose(6, ("a", "b", "c-2"), 6)


def test_the_others_continue_without_a_fenced_member_that_does_not_register_in_time() -> None:
    core = training_agent("a", "b", "c")
    core.handle_all(fence("c"), 1.0)
    core.handle_all([Resumed("c"), Ready(), MemberPut(member("a", 5))], 1.05)
    core.handle(MemberPut(member("b", 5)), 1.1)
    core.handle(Resumed("c"), 1.2)

    assert core.handle(Tick(), 1.06 + RETURN_SECONDS) == [Propose(6, ("a", "b"), 6)]


def test_a_fenced_agent_sends_heartbeats_until_the_others_have_continued_without_it() -> None:
    core = training_agent("a", "b", "c")
    core.handle_all(fence("a"), 1.0)
    assert core.identity is None
    assert core.heartbeat_identity == "a"
    core.handle(Ready(), 1.1)
    assert core.heartbeat_identity == "a"

    core.handle(GenerationPut(Generation(6, ("b", "c"), "10.0.0.1:1"), 7), 1.2)

    assert core.heartbeat_identity is None


@pytest.mark.parametrize("event", [Withdrawn(), Leave()])
def test_a_fenced_agent_that_does_not_return_sends_no_heartbeats(event: Withdrawn | Leave) -> None:
    core = training_agent("a", "b", "c")
    core.handle_all([*fence("a"), Ready()], 1.0)

    core.handle(event, 1.1)

    assert core.heartbeat_identity is None


def test_an_agent_whose_key_is_missing_treats_its_lease_as_lapsed() -> None:
    core = training_agent("a", "b")

    actions = core.handle(MembershipSnapshot((member("b", 4),), core.current, 5), 1)

    assert [type(action) for action in actions] == [Reclaim]


def test_a_worker_that_ends_while_its_key_is_put_back_waits_under_that_key() -> None:
    core = training_agent("a", "b")
    core.handle(LeaseLapsed(), 1)

    assert core.handle(Ready(), 1) == []
    assert core.handle(Registered("a"), 2) == [Announce(5, leaving=False)]


def test_the_key_of_a_group_that_was_stopped_is_not_put_back() -> None:
    core = training_agent("a", "b", "c")
    core.handle(MemberPut(member("b", 5)), 1)

    assert core.handle(MemberRemoved("a"), 40) == [], (
        "a member evicted this agent, which did not stop"
    )
    assert core.handle(Ready(), 41) == [Register(5)]


def test_workers_that_leave_while_their_key_is_restored_do_not_join_that_generation_again() -> None:
    core = training_agent("a", "b")
    group = core.current
    core.handle(Unreachable(), 1)
    reclaim = core.handle_all([Reachable(), MembershipSnapshot((member("b", 4),), group, 5)], 11)
    assert [type(action) for action in reclaim] == [Reclaim]

    actions = core.handle_all([Ready(), Registered("a")], 11)

    assert actions == [Announce(5, leaving=False)], "a worker enters a generation only once"
    core.handle_all([MemberPut(member("a", 4)), MemberPut(member("a", 5))], 11)
    new_generation = Generation(6, ("a", "b"))
    assert core.handle(GenerationPut(new_generation, 7), 12) == [Begin(new_generation, 0)]


def test_a_fenced_agent_stops_and_registers_again_although_its_generation_is_current() -> None:
    core = training_agent("a", "b")
    fenced_generation = Generation(5, ("a", "b"), "10.0.0.1:1", fenced=("a",))

    assert core.handle_all([MemberRemoved("a"), GenerationPut(fenced_generation, 9)], 1) == [
        Stop("the others suspected that this node is lost")
    ], "the others have stopped: a key that it puts back would only make them wait"
    assert core.handle(Tick(), 2) == []
    core.handle(MemberPut(member("b", 5)), 2)
    assert core.handle(Ready(), 3) == [Register(5)]


def test_a_fenced_peer_is_lost_although_etcd_was_just_unreachable() -> None:
    core = training_agent("a", "b")
    core.handle_all([Unreachable(), Reachable()], 1)
    fenced_generation = Generation(5, ("a", "b"), "10.0.0.1:1", fenced=("b",))

    assert core.handle_all([MemberRemoved("b"), GenerationPut(fenced_generation, 9)], 1.5) == [
        Stop("lost b")
    ]


def test_without_a_generation_in_etcd_the_old_one_is_not_resumed() -> None:
    core = training_agent("a", "b")

    assert [type(action) for action in core.handle(MembershipSnapshot((), None, 0), 1)] == [Stop]


def test_keys_that_were_removed_in_an_outage_of_etcd_have_time_to_return() -> None:
    core = training_agent("a", "b")
    core.handle(Unreachable(), 1)
    core.handle(Reachable(), 30)

    assert core.handle(MemberRemoved("b"), 30) == []
    assert core.wake_at(30) == 33
    assert core.handle(MemberPut(member("b", 4)), 31) == []
    assert core.handle(Tick(), 33) == []


def test_a_key_that_does_not_return_after_an_outage_is_a_loss() -> None:
    core = training_agent("a", "b")
    core.handle(Unreachable(), 1)
    core.handle(Reachable(), 30)
    core.handle(MemberRemoved("b"), 30)

    assert core.handle(Tick(), 33) == [Stop("lost b")]


def test_a_peer_that_reports_its_stop_counts_as_stopped_in_an_outage() -> None:
    core = training_agent("a", "b")
    core.handle(Unreachable(), 1)

    assert core.handle(MemberPut(member("b", 5)), 2) == [Stop("lost b")]


def test_no_agent_proposes_while_others_may_still_put_their_keys_back() -> None:
    core = training_agent("a", "b")
    core.handle(Unreachable(), 1)
    core.handle(MemberRemoved("b"), 30)
    core.handle(Reachable(), 30)

    assert core.handle(Ready(), 30) == [Announce(5, leaving=False)]
    assert core.handle(Tick(), 33) == [Propose(6, ("a",), 5)]


def test_changed_bounds_apply_immediately() -> None:
    core = agent(member("a"), member("b", order=2), max_members=1, generation=Generation(4, ()))
    core.handle(Ready(), 0)
    generation = Generation(5, ("a",))
    assert core.handle(GenerationPut(generation, 5), 0) == [Begin(generation, 0)], "b is a spare"

    assert core.handle(BoundsChanged(1, 2), 2) == [Regroup("b joins")]


def test_a_raised_minimum_does_not_stop_a_training_group() -> None:
    core = training_agent("a", "b")

    assert core.handle(BoundsChanged(3, 3), 1) == []


def test_after_a_restore_of_etcd_the_older_generation_counts_and_numbers_keep_growing() -> None:
    core = training_agent("a", "b")
    restored_generation = Generation(3, ("z",))

    assert core.handle(MembershipSnapshot((), restored_generation, 2), 1) == [
        Stop("generation 3 has replaced 5")
    ]
    assert core.handle(Ready(), 2) == [Register(5)]
    core.handle(Registered("a2"), 3)

    assert core.handle(MemberPut(member("a2", 5, order=3)), 4) == [], "others may still come"
    assert core.handle(Tick(), 99) == [Propose(6, ("a2",), 2)]


def test_an_agent_with_higher_revisions_joins_a_new_generation_of_a_restored_etcd() -> None:
    core = training_agent("a", "b")
    core.handle(MembershipSnapshot((), Generation(3, ("z",)), 2), 1)
    core.handle(Ready(), 2)
    core.handle(Registered("a2"), 3)
    core.handle(MemberPut(member("a2", 5, order=3)), 4)
    core.handle(MemberPut(member("b2", 5, order=4)), 4)
    new_generation = Generation(6, ("b2", "a2"))

    assert core.handle(GenerationPut(new_generation, 4), 5) == [Begin(new_generation, 1)]


def test_numbers_keep_growing_after_etcd_has_lost_all_data() -> None:
    core = training_agent("a", "b")
    core.handle(MembershipSnapshot((), None, 0), 1)
    core.handle(Ready(), 1)
    core.handle(MemberPut(member("a2", 5, order=1)), 1)
    core.handle(Registered("a2"), 1)
    core.handle(MemberPut(member("b2", 7, order=2)), 2)

    assert core.handle(Tick(), 99) == [Propose(8, ("a2", "b2"), 0)]


GENERATION_UNKNOWN = UnreadableKeys(generation=True)
COMMIT_UNKNOWN = UnreadableKeys(committed=True)


@pytest.mark.parametrize("unreadable", [GENERATION_UNKNOWN, COMMIT_UNKNOWN])
def test_a_group_continues_and_admits_no_joiner_while_a_key_cannot_be_read(
    unreadable: UnreadableKeys,
) -> None:
    core = training_agent("a", "b")

    assert core.handle(unreadable, 1) == []
    assert core.handle(MemberPut(member("c")), 2) == [], "the next group could not form"
    assert core.handle(Tick(), 99) == []

    assert core.handle(UnreadableKeys(), 100) == [Regroup("c joins")]


def test_a_loss_stops_the_workers_although_a_key_cannot_be_read() -> None:
    core = training_agent("a", "b")
    core.handle(GENERATION_UNKNOWN, 1)

    assert core.handle(MemberRemoved("b"), 2) == [Stop("lost b")]


@pytest.mark.parametrize("unreadable", [GENERATION_UNKNOWN, COMMIT_UNKNOWN])
def test_no_generation_is_proposed_while_a_key_cannot_be_read(unreadable: UnreadableKeys) -> None:
    core = agent(member("a", order=1), member("b", order=2), member("c", order=3))
    core.handle(unreadable, 0)

    assert core.handle(Ready(), 1) == [Announce(0, leaving=False)]
    assert core.handle(Tick(), 99) == []

    assert core.handle(UnreadableKeys(), 100) == [Propose(1, ("a", "b", "c"), 0)]


@pytest.mark.parametrize("unreadable", [GENERATION_UNKNOWN, COMMIT_UNKNOWN])
def test_no_generation_begins_while_a_key_cannot_be_read(unreadable: UnreadableKeys) -> None:
    core = agent(member("a", order=1), member("b", order=2))
    core.handle(Ready(), 0)
    core.handle(unreadable, 1)
    generation = Generation(1, ("a", "b"))

    assert core.handle(GenerationPut(generation, 9), 2) == [], "its workers need the newest commit"

    assert core.handle(UnreadableKeys(), 3) == [Begin(generation, 0)]


def test_an_agent_does_not_register_while_a_key_cannot_be_read() -> None:
    core = Membership(GroupLimits(max_members=3))
    core.handle(MembershipSnapshot((), None, 9, unreadable=GENERATION_UNKNOWN), 0)

    assert core.handle(Ready(), 0) == []
    assert core.handle(MembershipSnapshot((), None, 0), 1) == [Register(0)]


def test_a_lapsed_key_is_restored_once_the_generation_is_known() -> None:
    core = training_agent("a", "b")
    core.handle(GENERATION_UNKNOWN, 1)

    assert core.handle(LeaseLapsed(), 2) == [], "the request would fail, and the workers would stop"

    restored_group = Generation(5, ("a", "b"), "10.0.0.1:1")
    core.handle(GenerationPut(restored_group, 12), 3)
    assert core.handle(UnreadableKeys(), 3) == [Reclaim("a", 4, leaving=False, revision=12)]


def test_a_snapshot_with_an_unknown_generation_does_not_count_as_a_wiped_etcd() -> None:
    core = training_agent("a", "b")
    members = (member("a", 4), member("b", 4))
    snapshot = MembershipSnapshot(members, None, 9, unreadable=GENERATION_UNKNOWN)

    assert core.handle(snapshot, 1) == []

    assert core.view.revision == 5


def test_after_an_unreadable_generation_was_removed_the_group_changes_after_a_step() -> None:
    """Without the key the group can commit nothing, and fence no member."""
    core = training_agent("a", "b")
    core.handle(GENERATION_UNKNOWN, 1)
    members = (member("a", 4, order=1), member("b", 4, order=2))

    assert core.handle(MembershipSnapshot(members, None, 0), 2) == [
        Regroup("etcd has no generation")
    ]

    core.handle(Ready(), 3)
    assert core.handle(MemberPut(member("b", 5, order=2)), 4) == [Propose(6, ("a", "b"), 0)]


def test_a_group_that_etcd_has_lost_stops_if_a_member_is_lost_too() -> None:
    """Such a group cannot complete its step and regroup after it: it would wait for the lost member forever."""
    core = training_agent("a", "b")

    assert core.handle(MembershipSnapshot((member("a", 4),), None, 0), 2) == [Stop("lost b")]


def test_a_proposal_that_an_unreadable_generation_has_replaced_is_repeated() -> None:
    core = agent(member("a", order=1), member("b", order=2), member("c", order=3))
    proposal = Propose(1, ("a", "b", "c"), 0)
    assert proposal in core.handle(Ready(), 0)
    core.handle(GENERATION_UNKNOWN, 1)
    members = tuple(core.members.values())

    assert core.handle(MembershipSnapshot(members, None, 0), 2) == [proposal]


def test_a_proposal_is_repeated_in_another_etcd_even_at_the_same_revision() -> None:
    """A group of the same size that others form in a new etcd often has the same revision."""
    previous_generation = Generation(5, ("a", "lost"))
    members = (member("a", 5, order=1), member("b", 5, order=2))
    core = agent(*members, generation=previous_generation)
    assert Propose(6, ("a", "b"), 5) in core.handle(Ready(), 0)
    core.handle(MembershipSnapshot(members, Generation(7, ("z",)), 5, store_was_replaced=True), 1)

    assert core.handle(Tick(), 99) == [Propose(8, ("a", "b"), 5)]


def test_a_forged_generation_costs_one_regroup() -> None:
    core = training_agent("a", "b")
    forged_generation = Generation(999, ("nobody-1",), "10.0.0.66:4444")

    assert core.handle(GenerationPut(forged_generation, 6), 1) == [
        Stop("generation 999 has replaced 5")
    ]
    core.handle(Ready(), 2)
    core.handle(MemberPut(member("b", 999)), 3)
    assert core.handle(Tick(), 99) == [Propose(1000, ("a", "b"), 6)]


def test_the_end_of_the_run_is_reported_once() -> None:
    core = training_agent("a", "b")
    outcome = RunEnded(finished=True, reason="done")

    assert core.handle(outcome, 1) == [outcome]
    assert core.handle(Tick(), 2) == []


def late_agent(*members: Member, min_members: int = 2, ended_at: int = 6) -> Membership:
    """Return the agent `a`, which has started after the end of the run whose last generation is 5."""
    previous_generation = Generation(5, ("x", "y"))
    core = agent(*members, generation=previous_generation, min_members=min_members)
    core.handle(EarlierRunEnded(RunEnded(finished=True, reason="done"), ended_at), 0)
    core.handle(Ready(), 0)
    return core


def test_an_agent_that_starts_after_the_end_of_its_run_ends_if_no_other_comes() -> None:
    core = late_agent(member("a", 5))

    assert str(core.shortage).startswith("waiting for nodes: 1 of at least 2 ready; a run of this")
    assert core.handle(Tick(), NEW_RUN_SECONDS - 1) == []
    assert core.wake_at(NEW_RUN_SECONDS - 1) == NEW_RUN_SECONDS
    [outcome] = core.handle(Tick(), NEW_RUN_SECONDS)
    assert isinstance(outcome, RunEnded)
    assert outcome.finished
    assert outcome.reason.startswith("it had ended before this node started")
    assert outcome.reason.endswith("done")
    assert core.handle(Tick(), NEW_RUN_SECONDS + 1) == []


def test_several_agents_that_start_after_the_end_of_their_run_end_after_the_last_arrival() -> None:
    core = late_agent(member("a", 5, order=7), min_members=3)
    core.handle(MemberPut(member("b", 5, order=8)), 100)

    assert core.handle(Tick(), NEW_RUN_SECONDS + 99) == []
    assert any(
        isinstance(action, RunEnded) for action in core.handle(Tick(), NEW_RUN_SECONDS + 100)
    )


def test_a_new_run_of_the_same_name_begins_once_its_nodes_are_there() -> None:
    core = late_agent(member("a", 5, order=7))
    core.handle(MemberPut(member("b", 5, order=8)), NEW_RUN_SECONDS - 1)

    assert core.handle(Tick(), NEW_RUN_SECONDS + 3) == [Propose(6, ("a", "b"), 5)]
    group = Generation(6, ("a", "b"), "10.0.0.1:1")
    assert core.handle(GenerationPut(group, 9), NEW_RUN_SECONDS + 4) == [Begin(group, 0)]

    core.handle(MemberRemoved("b"), NEW_RUN_SECONDS + 5)
    core.handle(Ready(), NEW_RUN_SECONDS + 6)
    assert core.handle(Tick(), 10 * NEW_RUN_SECONDS) == [], "it waits for the return of b"


@pytest.mark.parametrize("ended_at", [4, 5])
def test_a_node_waits_in_a_run_that_has_formed_a_group_since_the_earlier_end(ended_at: int) -> None:
    core = late_agent(member("a", 5), ended_at=ended_at)

    assert core.handle(Tick(), 10 * NEW_RUN_SECONDS) == []
    assert "ended" not in str(core.shortage)


def test_the_end_of_an_earlier_run_is_forgotten_with_the_store_that_had_it() -> None:
    core = late_agent(member("a", 5))
    core.handle(MembershipSnapshot((member("a", 5),), None, 0, store_was_replaced=True), 1)

    assert core.handle(Tick(), 10 * NEW_RUN_SECONDS) == []


@pytest.mark.schedules
@pytest.mark.parametrize("coordinators", COORDINATORS)
@pytest.mark.parametrize("min_members", [1, 2])
def test_random_schedules_keep_the_invariants_and_eventually_make_progress(
    coordinators: int, min_members: int
) -> None:
    for seed in schedules(coordinators, 2):
        world = World(seed, nodes=4, min_members=min_members, coordinators=coordinators)
        if seed % 2:  # without this, most faults occur while the first group forms
            world.end_faults()
        for _ in range(MOVES):
            world.move()
            check_invariants(world, seed)
        while sum(not agent.leave_requested for agent in world.alive()) < min_members:
            world.spawn()
        initial_step = world.step
        world.end_faults()
        check_invariants(world, seed)
        leaving_agents = [a for a in world.alive() if a.core.leaving]
        assert not leaving_agents, f"seed {seed}: {leaving_agents[0].name} never left"
        assert world.step > initial_step, (
            f"seed {seed}: no worker trains although {len(world.alive())} nodes are alive"
        )


@pytest.mark.schedules
@pytest.mark.parametrize("coordinators", COORDINATORS)
@pytest.mark.parametrize("min_members", [1, 2])
def test_training_continues_after_etcd_was_wiped_or_restored(
    coordinators: int, min_members: int
) -> None:
    """Agents that were cut off have a newer view than etcd itself."""
    for seed in schedules(coordinators, 4):
        world = World(seed, nodes=4, min_members=min_members, coordinators=coordinators)
        backup = world.backup()
        for _ in range(MOVES):
            world.move()
            if world.random.random() < 0.02:
                backup = world.backup()
            if world.random.random() < 0.02:
                world.replace_etcd(world.random.choice([None, backup]))
            if world.random.random() < 0.02 and world.awake():
                world.cut_off(world.random.choice(world.awake()))
        while sum(not agent.leave_requested for agent in world.alive()) < min_members:
            world.spawn()
        initial_step = world.step
        for _ in range(4):
            world.end_faults()
        assert world.step > initial_step, f"seed {seed}: no worker trains"


@pytest.mark.schedules
@pytest.mark.parametrize("coordinators", COORDINATORS)
@pytest.mark.parametrize("min_members", [1, 2])
def test_no_group_forms_while_the_generation_cannot_be_read_and_training_continues_after_a_repair(
    coordinators: int, min_members: int
) -> None:
    for seed in schedules(coordinators, 6):
        world = World(seed, nodes=4, min_members=min_members, coordinators=coordinators)
        for _ in range(MOVES):
            was_damaged = world.etcd.unreadable.generation
            generations = len(world.etcd.agreed_generations)
            world.move()
            is_new = len(world.etcd.agreed_generations) > generations
            assert not (was_damaged and is_new), f"seed {seed}: it replaces an unknown generation"
            check_invariants(world, seed)
            if world.random.random() < 0.03:
                world.etcd.damage(world.random.choice(["generation", "committed"]))
            if world.random.random() < 0.03:
                world.repair_keys()
        while sum(not agent.leave_requested for agent in world.alive()) < min_members:
            world.spawn()
        initial_step = world.step
        world.end_faults()
        check_invariants(world, seed)
        assert world.step > initial_step, f"seed {seed}: no worker trains"


@pytest.mark.parametrize("coordinators", [0, 2])
@pytest.mark.parametrize("name", ["generation", "committed"])
def test_an_unreadable_key_does_not_change_the_group(name: str, coordinators: int) -> None:
    for seed in range(10):
        world = World(seed, nodes=4, min_members=1, coordinators=coordinators)
        world.end_faults()
        generation_count, step = len(world.etcd.agreed_generations), world.step
        world.etcd.damage(name)
        world.spawn()  # a joiner
        for _ in range(200):
            world.deliver(world.random.choice(world.agents), world.random.randint(1, 3))
            world.advance(0.1)
            world.train()
        assert world.step > step, f"seed {seed}: the group trains"
        assert len(world.etcd.agreed_generations) == generation_count, f"seed {seed}"
        step = world.step

        world.end_faults()

        assert world.committed.get(world.step), f"seed {seed}: commits continue"
        assert world.step > step


def test_a_joiner_after_a_stop_does_not_let_workers_finish_the_step() -> None:
    core = training_agent("a", "b")
    assert core.handle(MemberRemoved("b"), 1) == [Stop("lost b")]

    assert core.handle(MemberPut(member("c")), 1) == [], "a Regroup would delay the stop"


def test_each_joiner_restarts_the_wait_for_latecomers() -> None:
    core = agent(member("a", order=1), member("b", order=2), max_members=4)
    core.handle(Ready(), 0)

    assert core.handle(MemberPut(member("c", order=3)), 2) == []
    assert core.handle(Tick(), 3) == []
    assert core.handle(Tick(), 5) == [Propose(1, ("a", "b", "c"), 0)], "one group for all three"


@pytest.mark.parametrize("coordinators", [0, 2])
@pytest.mark.parametrize("seed", range(30))
def test_an_outage_of_etcd_does_not_change_the_group(coordinators: int, seed: int) -> None:
    world = World(seed, nodes=4, min_members=1, coordinators=coordinators)
    world.end_faults()
    generation_count, step = len(world.etcd.agreed_generations), world.step
    for _ in range(3):
        world.begin_outage()
        for _ in range(world.random.randint(1, 60)):
            world.advance(0.5)
            world.train()
        assert world.step > step, f"seed {seed}: training continues"
        step = world.step
        world.end_outage()
        for _ in range(60):
            world.deliver(world.random.choice(world.agents), world.random.randint(1, 3))
            world.train()
        world.end_faults()
        assert world.committed.get(world.step), f"seed {seed}: commits continue"

    assert len(world.etcd.agreed_generations) == generation_count, (
        f"seed {seed}: no member was lost, so none regroups"
    )


@pytest.mark.schedules
@pytest.mark.parametrize("coordinators", COORDINATORS)
def test_a_tick_before_an_agent_has_to_wake_up_changes_nothing(
    coordinators: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise an agent without events would act late: it sleeps until `wake_at`."""
    wake_times: dict[int, float | None] = {}
    early_actions: list[Action] = []
    handle_all = Membership.handle_all

    def handle_and_check(core: Membership, events: list[Event], now: float) -> list[Action]:
        actions = handle_all(core, events, now)
        wake_at = wake_times.get(id(core), now)
        if all(isinstance(event, Tick) for event in events) and (wake_at is None or now < wake_at):
            early_actions.extend(actions)
        wake_times[id(core)] = core.wake_at(now)
        return actions

    monkeypatch.setattr(Membership, "handle_all", handle_and_check)
    for seed in schedules(coordinators, 8):
        wake_times.clear()
        world = World(seed, nodes=4, min_members=1 + seed % 2, coordinators=coordinators)
        world.end_faults()  # the group trains before the first fault
        for _ in range(MOVES):
            world.move()
        world.end_faults()
        assert not early_actions, f"seed {seed}"


@pytest.mark.schedules
@pytest.mark.parametrize("coordinators", COORDINATORS)
def test_two_groups_never_train_at_the_same_time(coordinators: int) -> None:
    for seed in schedules(coordinators, 2):
        world = World(seed, nodes=4, min_members=1, coordinators=coordinators)
        for _ in range(MOVES):
            world.move()
            complete_generations = {
                generation.number
                for generation in world.etcd.agreed_generations
                if all(
                    any(
                        a.running_generation == generation.number and a.lease_identity == name
                        for a in world.awake()
                    )
                    for name in generation.members
                )
            }
            assert len(complete_generations) <= 1, (
                f"seed {seed}: generations {complete_generations} could both take a step"
            )
