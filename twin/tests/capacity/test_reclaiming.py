"""Capacity that remains for pools after machines are reclaimed."""

from cloudtwin.capacity.reclaiming import remaining_machines

POOLS = {"t4-0": "t4", "t4-1": "t4", "a10-0": "a10", "system-0": "system", "mine": ""}


def test_a_pool_that_loses_machines_keeps_capacity_for_the_others_only() -> None:
    assert remaining_machines(POOLS, ["t4-0"]) == {"t4": 1}
    assert remaining_machines(POOLS, ["t4-0", "t4-1", "a10-0"]) == {"a10": 0, "t4": 0}


def test_a_machine_without_a_pool_limits_no_capacity() -> None:
    assert remaining_machines(POOLS, ["mine"]) == {}
