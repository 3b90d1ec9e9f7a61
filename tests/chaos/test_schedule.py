"""Schedules are functions of their seed, and contain every kind of fault."""

from collections import Counter

import pytest

from tests.chaos.schedule import (
    KINDS,
    NODE_FAULTS,
    NODES,
    SHARED_FAULTS,
    members,
    schedule,
)


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_replays_the_same_faults(seed: int) -> None:
    assert schedule(seed, 20) == schedule(seed, 20)
    assert schedule(seed, 20) != schedule(seed + 1, 20)


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_has_the_given_number_of_faults(seed: int) -> None:
    faults = [fault for round_ in schedule(seed, 20) for fault in round_.faults]

    assert len(faults) == 20
    assert {fault.kind for fault in faults} <= set(KINDS)


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_contains_every_kind_equally_often(seed: int) -> None:
    counts = Counter(f.kind for round_ in schedule(seed, 2 * len(KINDS)) for f in round_.faults)

    assert counts == dict.fromkeys(KINDS, 2)


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_of_chosen_kinds_contains_no_others(seed: int) -> None:
    kinds = ("etcd-restore", "etcd-slow-disk", "kill-worker")
    counts = Counter(f.kind for round_ in schedule(seed, 6, kinds=kinds) for f in round_.faults)

    assert counts == dict.fromkeys(kinds, 2)


@pytest.mark.parametrize("seed", range(50))
def test_overlapping_faults_have_different_nodes_and_at_most_one_affects_a_shared_component(
    seed: int,
) -> None:
    for round_ in schedule(seed, 20):
        nodes = [f.targets[0] for f in round_.faults if f.kind in NODE_FAULTS]
        shared_faults = [fault for fault in round_.faults if fault.kind in SHARED_FAULTS]
        assert len(nodes) == len(set(nodes)), "a node would be killed while it is drained"
        assert len(shared_faults) <= 1, "two faults of etcd could break its quorum"


@pytest.mark.parametrize("seed", range(4))
def test_targets_are_members_of_etcd_for_its_faults_and_nodes_for_all_others(seed: int) -> None:
    for fault in (fault for round_ in schedule(seed, 40) for fault in round_.faults):
        machines = members(seed) if fault.kind.startswith("etcd-") else NODES
        assert fault.targets, fault
        assert set(fault.targets) <= set(machines), fault
