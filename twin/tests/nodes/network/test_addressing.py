"""Addresses of machines, pods and services: unique, in their networks, and disjoint."""

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import cloudtwin
import pytest
from cloudtwin.nodes.network import addressing
from cloudtwin.nodes.network.addressing import MAX_MACHINES, Address
from hypothesis import example, given
from hypothesis.strategies import integers, sets

slots = integers(min_value=1, max_value=MAX_MACHINES)


def test_addresses_of_slots_and_the_control_plane_are_unique() -> None:
    plan = [Address(slot) for slot in range(1, MAX_MACHINES + 1)]

    for kind in ("ip", "mac", "pods", "port"):
        assert len({getattr(address, kind) for address in plan}) == MAX_MACHINES
    assert addressing.CONTROL_PLANE not in {address.ip for address in plan}


@given(slot=slots)
def test_the_addresses_of_a_slot_are_in_their_networks(slot: int) -> None:
    address = Address(slot)

    assert address.ip in addressing.MACHINES_NETWORK
    assert address.pods.subnet_of(addressing.PODS_NETWORK)
    assert len(address.port) <= 15, "the kernel limits link names to 15 characters"
    assert int(address.mac[:2], 16) & 3 == 2, (
        "must be locally administered unicast, or it may collide with the address of a real network card"
    )


@pytest.mark.parametrize("slot", [0, MAX_MACHINES + 1, -1])
def test_a_slot_out_of_range_is_refused(slot: int) -> None:
    with pytest.raises(ValueError, match="slot"):
        Address(slot)


@given(used_slots=sets(slots))
@example(used_slots=set(range(1, MAX_MACHINES + 1)))
def test_the_lowest_free_slot_is_returned_or_none_if_all_are_used(used_slots: set[int]) -> None:
    slot = addressing.free_slot(used_slots)

    if slot is None:
        assert len(used_slots) == MAX_MACHINES
    else:
        assert slot not in used_slots
        assert set(range(1, slot)) <= used_slots


def test_a_machine_routes_to_the_pods_of_all_others_and_not_to_its_own() -> None:
    routes = addressing.pod_routes(3)

    assert len(routes) == MAX_MACHINES - 1
    assert not any(route.startswith(str(Address(3).pods)) for route in routes)
    assert f"{Address(7).pods} via {Address(7).ip}" in routes


def test_the_networks_of_machines_pods_and_services_do_not_overlap() -> None:
    networks = [addressing.MACHINES_NETWORK, addressing.PODS_NETWORK, addressing.SERVICES_NETWORK]

    assert not any(a.overlaps(b) for a in networks for b in networks if a is not b)
    assert addressing.DNS_SERVICE in addressing.SERVICES_NETWORK


def test_no_other_module_repeats_an_address_of_the_plan() -> None:
    plan = [
        str(value)
        for value in vars(addressing).values()
        if isinstance(value, IPv4Address | IPv4Network)
    ]
    modules = [
        path
        for path in Path(cloudtwin.__file__).parent.rglob("*.py")
        if path.name not in ("addressing.py", "aks_network.py")  # AKS's defaults are facts
    ]

    assert len(plan) >= 7
    assert {
        path.name: address for path in modules for address in plan if address in path.read_text()
    } == {}
