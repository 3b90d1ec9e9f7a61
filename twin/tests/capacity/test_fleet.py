"""Decisions to start and stop machines so that pools have their desired sizes."""

from dataclasses import replace

import pytest
from cloudtwin.capacity import fleet
from cloudtwin.capacity.fleet import PoolMachine
from cloudtwin.nodes.records import NAME
from hypothesis import given, settings
from hypothesis.strategies import booleans, integers, lists, none, one_of, sampled_from, tuples

from twin.tests.capacity.builders import machines, pool


def test_a_pool_that_lacks_machines_gets_them() -> None:
    plan = fleet.decide([pool(desired_size=3)], machines("spot-0"), {})

    assert plan.start == {"c/spot": 2}
    assert not plan.stop
    assert not plan.shortages


def test_surplus_machines_stop_newest_first() -> None:
    plan = fleet.decide([pool(desired_size=1)], machines("spot-0", "spot-1", "spot-2"), {})

    assert plan.stop == ("spot-1", "spot-2")


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_a_machine_with_a_notice_never_makes_another_one_stop(cloud: str) -> None:
    pool_machines = [*machines("spot-0", has_notice=True), *machines("spot-1", "spot-2", "spot-3")]

    assert not fleet.decide([pool(desired_size=3, cloud=cloud)], pool_machines, {}).stop


def simulate_upgrade(size: int, surge: int, delay_ticks: int) -> list[list[PoolMachine]]:
    """Return the machines of a pool at each tick of a simulated upgrade.

    Args:
        size: desired size of the pool.
        surge: machines that may exist above the desired size.
        delay_ticks: ticks until a new machine is Ready, and until an old one has been drained.
    """
    target = pool(desired_size=size, surge=surge, release="new")
    pool_machines = machines(*(f"spot-{n}" for n in range(size)), release="old")
    started_at: dict[str, int] = {}
    history = [pool_machines]
    for now in range(60):  # more than the slowest upgrade of the tests takes
        pool_machines = [
            replace(m, ready=m.ready or now - started_at[m.name] > delay_ticks)
            for m in pool_machines
            if not (m.leaving and now - started_at[m.name] > delay_ticks)
        ]
        plan = fleet.decide([target], pool_machines, {})
        assert not plan.stop, "no machine is in excess"
        assert len(plan.replace) <= 1, "one machine is replaced at a time"
        started_at |= dict.fromkeys(plan.replace, now)
        new_names = [
            f"spot-{len(started_at) + n}-{now}" for n in range(plan.start.get("c/spot", 0))
        ]
        started_at |= dict.fromkeys(new_names, now)
        pool_machines = [
            replace(m, leaving=m.leaving or m.name in plan.replace) for m in pool_machines
        ]
        pool_machines += machines(*new_names, release="new", ready=False)
        history.append(pool_machines)
    return history


@settings(max_examples=40)
@given(size=integers(0, 4), surge=integers(0, 2), delay_ticks=integers(0, 3))
def test_an_upgrade_replaces_every_machine_and_keeps_the_pool_as_full_as_its_surge_allows(
    size: int, surge: int, delay_ticks: int
) -> None:
    history = simulate_upgrade(size, surge, delay_ticks)

    assert [m.release for m in history[-1]] == ["new"] * size
    for pool_machines in history:
        available_machines = [m for m in pool_machines if m.ready and not m.leaving]
        assert len(available_machines) >= size - (surge == 0), (
            "a machine left before its successor was Ready"
        )
        assert len(pool_machines) <= size + surge, "more machines than the surge allows"


def test_an_upgrade_without_capacity_for_its_surge_waits() -> None:
    target = pool(desired_size=1, surge=1, release="new")
    plan = fleet.decide([target], machines("spot-0", release="old"), {"c/spot": 1})

    assert (plan.replace, dict(plan.start), dict(plan.shortages)) == ((), {}, {"c/spot": 1})


def test_surplus_machines_of_an_old_release_stop_first() -> None:
    pool_machines = [
        *machines("spot-0", release="new"),
        *machines("spot-1", "spot-2", release="old"),
    ]
    plan = fleet.decide([pool(desired_size=1, release="new")], pool_machines, {})

    assert set(plan.stop) == {"spot-1", "spot-2"}
    assert plan.replace == ()


def test_machines_of_a_deleted_pool_stop() -> None:
    assert fleet.decide([], machines("spot-0", "spot-1"), {}).stop == ("spot-0", "spot-1")


def test_a_vanished_machine_is_forgotten_and_replaced() -> None:
    plan = fleet.decide([pool(desired_size=1)], machines("spot-0", alive=False), {})

    assert plan.forget == ("spot-0",)
    assert plan.start == {"c/spot": 1}


def test_a_leaving_machine_is_not_forgotten_and_gets_a_successor() -> None:
    plan = fleet.decide([pool(desired_size=1)], machines("spot-0", leaving=True, alive=False), {})

    assert not plan.forget
    assert plan.start == {"c/spot": 1}


def test_without_capacity_a_pool_has_a_shortage_and_spot_machines_are_reclaimed() -> None:
    plan = fleet.decide(
        [pool(desired_size=3)], machines("spot-0", "spot-1", "spot-2"), {"c/spot": 1}
    )

    assert plan.reclaim == ("spot-1", "spot-2")
    assert plan.shortages == {"c/spot": 2}
    assert not plan.start
    assert not plan.stop


def test_on_demand_machines_keep_running_without_capacity_but_no_more_start() -> None:
    pool_machines = machines("d-0", "d-1", pool_name="c/d")
    plan = fleet.decide(
        [pool("d", capacity="on-demand", desired_size=3)], pool_machines, {"c/d": 0}
    )

    assert (plan.reclaim, dict(plan.start), dict(plan.shortages)) == ((), {}, {"c/d": 1})


@pytest.mark.parametrize(("cloud", "expected"), [("aws", {"c/spot": 1}), ("azure", {})])
def test_eks_replaces_a_machine_with_a_notice_immediately_and_aks_does_not(
    cloud: str, expected: dict[str, int]
) -> None:
    pool_machines = [*machines("spot-0", has_notice=True), *machines("spot-1")]

    plan = fleet.decide([pool(cloud=cloud, desired_size=2)], pool_machines, {})

    assert plan.start == expected
    assert not plan.stop


def test_machines_with_a_notice_do_not_count_against_the_capacity() -> None:
    pool_machines = [*machines("spot-0", has_notice=True), *machines("spot-1", "spot-2")]

    plan = fleet.decide([pool(desired_size=3)], pool_machines, {"c/spot": 2})

    assert not plan.reclaim, "the capacity suffices for the two machines without a notice"
    assert plan.shortages == {"c/spot": 1}


@settings(max_examples=50)
@given(
    desired=integers(0, 8),
    limit=one_of(none(), integers(0, 8)),
    cloud=sampled_from(["aws", "azure"]),
    states=lists(tuples(booleans(), booleans(), booleans()), max_size=10),
)
def test_after_a_plan_each_pool_has_its_desired_size_or_a_shortage(
    desired: int, limit: int | None, cloud: str, states: list[tuple[bool, bool, bool]]
) -> None:
    pool_machines = [
        PoolMachine(
            name=f"spot-{i}", pool="c/spot", alive=alive, leaving=leaving, has_notice=has_notice
        )
        for i, (alive, leaving, has_notice) in enumerate(states)
    ]
    limits = {} if limit is None else {"c/spot": limit}

    plan = fleet.decide([pool(desired_size=desired, cloud=cloud)], pool_machines, limits)

    ending_names = {*plan.stop, *plan.forget, *plan.reclaim}
    assert len(ending_names) == len(plan.stop) + len(plan.forget) + len(plan.reclaim), (
        "no machine is stopped for two reasons"
    )
    staying_machines = [
        m for m in pool_machines if m.alive and not m.leaving and m.name not in ending_names
    ]
    active_machines = [m for m in staying_machines if not m.has_notice]
    counted_machines = active_machines if cloud == "aws" else staying_machines
    start_count, shortage = plan.start.get("c/spot", 0), plan.shortages.get("c/spot", 0)
    assert len(counted_machines) + start_count + shortage == max(desired, len(counted_machines))
    assert len(active_machines) + start_count <= desired, "surplus machines stop"
    if limit is not None:
        assert len(active_machines) + start_count <= limit, "no machine starts beyond the capacity"


@pytest.mark.parametrize("name", ["Spot_Pool.1", "ÄÖ", "a" * 63, "-x-", "t4"])
def test_any_pool_name_gives_valid_machine_names(name: str) -> None:
    assert NAME.fullmatch(fleet.machine_name(name, 17))
    assert fleet.machine_name(name, 17).endswith("-17")


def test_machines_sort_by_number_and_not_alphabetically() -> None:
    names = [fleet.machine_name("spot", number) for number in (10, 2, 9)]

    assert sorted(names, key=fleet.machine_number) == ["spot-2", "spot-9", "spot-10"]
    assert fleet.machine_number("standalone") == 0


def test_machines_of_a_pool_do_not_count_for_a_pool_of_the_same_name_in_another_cluster() -> None:
    pools = [pool(cluster=cluster, desired_size=1) for cluster in ("a", "b")]

    plan = fleet.decide(pools, machines("spot-0", pool_name="a/spot"), {})

    assert (plan.start, plan.stop) == ({"b/spot": 1}, ())
