"""Machines taken back: what room their pools keep."""

from twin.clouds.capacity.reclaiming import room_left

POOLS = {"t4-0": "t4", "t4-1": "t4", "a10-0": "a10", "system-0": "system", "mine": ""}


def test_a_pool_that_loses_machines_keeps_room_for_the_others_and_no_more():
    assert room_left(POOLS, ["t4-0"]) == {"t4": 1}
    assert room_left(POOLS, ["t4-0", "t4-1", "a10-0"]) == {"a10": 0, "t4": 0}


def test_a_machine_of_no_pool_has_no_room_to_withhold():
    assert room_left(POOLS, ["mine"]) == {}
