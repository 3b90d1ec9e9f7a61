"""What is to be done so that pools have their machines."""

import pytest
from hypothesis import given, settings
from hypothesis.strategies import booleans, integers, lists, none, one_of, sampled_from, tuples

from tests.unit.twin.clouds.capacity.builders import pool, seen
from twin.clouds.capacity import fleet
from twin.clouds.capacity.fleet import Seen
from twin.nodes.records import NAME


def test_a_pool_that_lacks_machines_gets_them():
    plan = fleet.decide([pool(desired=3)], seen("spot-0"), {})

    assert plan.start == {"spot": 2}
    assert not plan.stop
    assert not plan.short


def test_of_too_many_machines_the_newest_go():
    plan = fleet.decide([pool(desired=1)], seen("spot-0", "spot-1", "spot-2"), {})

    assert plan.stop == ("spot-1", "spot-2")


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_machine_that_is_announced_to_go_never_costs_another_its_place(cloud):
    machines = [*seen("spot-0", noticed=True), *seen("spot-1", "spot-2", "spot-3")]

    assert not fleet.decide([pool(desired=3, cloud=cloud)], machines, {}).stop


def test_machines_of_a_deleted_pool_go():
    assert fleet.decide([], seen("spot-0", "spot-1"), {}).stop == ("spot-0", "spot-1")


def test_a_machine_that_is_no_more_is_forgotten_and_replaced():
    plan = fleet.decide([pool(desired=1)], seen("spot-0", alive=False), {})

    assert plan.forget == ("spot-0",)
    assert plan.start == {"spot": 1}


def test_a_machine_that_is_being_taken_away_is_left_alone():
    plan = fleet.decide([pool(desired=1)], seen("spot-0", leaving=True, alive=False), {})

    assert not plan.forget
    assert plan.start == {"spot": 1}


def test_without_room_a_pool_is_short_and_spot_machines_are_reclaimed():
    plan = fleet.decide([pool(desired=3)], seen("spot-0", "spot-1", "spot-2"), {"spot": 1})

    assert plan.reclaim == ("spot-1", "spot-2")
    assert plan.short == {"spot": 2}
    assert not plan.start
    assert not plan.stop


def test_machines_on_demand_stay_when_there_is_no_room_but_get_no_company():
    there = seen("d-0", "d-1", of="d")
    plan = fleet.decide([pool("d", capacity="on-demand", desired=3)], there, {"d": 0})

    assert (plan.reclaim, dict(plan.start), dict(plan.short)) == ((), {}, {"d": 1})


@pytest.mark.parametrize(("cloud", "replaced"), [("aws", {"spot": 1}), ("azure", {})])
def test_eks_replaces_a_machine_once_it_is_announced_and_aks_does_not(cloud, replaced):
    there = [*seen("spot-0", noticed=True), *seen("spot-1")]

    plan = fleet.decide([pool(cloud=cloud, desired=2)], there, {})

    assert plan.start == replaced
    assert not plan.stop


def test_machines_that_are_announced_do_not_use_the_room_of_those_that_stay():
    there = [*seen("spot-0", noticed=True), *seen("spot-1", "spot-2")]

    plan = fleet.decide([pool(desired=3)], there, {"spot": 2})

    assert not plan.reclaim, "the two that stay fit"
    assert plan.short == {"spot": 1}


@settings(max_examples=50, deadline=None)
@given(
    desired=integers(0, 8),
    limit=one_of(none(), integers(0, 8)),
    cloud=sampled_from(["aws", "azure"]),
    states=lists(tuples(booleans(), booleans(), booleans()), max_size=10),
)
def test_after_what_was_decided_a_pool_has_what_it_wants_or_is_short(desired, limit, cloud, states):
    machines = [
        Seen(name=f"spot-{i}", pool="spot", alive=alive, leaving=leaving, noticed=noticed)
        for i, (alive, leaving, noticed) in enumerate(states)
    ]
    limits = {} if limit is None else {"spot": limit}

    plan = fleet.decide([pool(desired=desired, cloud=cloud)], machines, limits)

    going = {*plan.stop, *plan.forget, *plan.reclaim}
    assert len(going) == len(plan.stop) + len(plan.forget) + len(plan.reclaim), "one end each"
    staying = [m for m in machines if m.alive and not m.leaving and m.name not in going]
    active = [m for m in staying if not m.noticed]
    counted = active if cloud == "aws" else staying
    started = plan.start.get("spot", 0)
    assert len(counted) + started + plan.short.get("spot", 0) >= desired
    assert len(active) + started <= max(desired, 0) or not started
    if limit is not None:
        assert len(active) + started <= max(limit, 0), "nothing runs that there is no room for"


@pytest.mark.parametrize("name", ["Spot_Pool.1", "ÄÖ", "a" * 63, "-x-", "t4"])
def test_any_name_of_a_pool_gives_names_that_machines_may_have(name):
    assert NAME.fullmatch(fleet.next_name(name, 17))
    assert fleet.next_name(name, 17).endswith("-17")


def test_machines_come_in_the_order_of_their_numbers_not_of_their_letters():
    names = [fleet.next_name("spot", number) for number in (10, 2, 9)]

    assert sorted(names, key=fleet.number_of) == ["spot-2", "spot-9", "spot-10"]
    assert fleet.number_of("somebodys-own") == 0
