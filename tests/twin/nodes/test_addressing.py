import pytest
from hypothesis import given
from hypothesis.strategies import integers, sets

from twin.nodes import addressing
from twin.nodes.addressing import MAX_MACHINES, Address

slots = integers(min_value=1, max_value=MAX_MACHINES)


def test_no_two_slots_share_an_address_and_none_has_the_control_plane_s():
    plan = [Address(slot) for slot in range(1, MAX_MACHINES + 1)]

    for kind in ("ip", "mac", "pods", "port"):
        assert len({getattr(address, kind) for address in plan}) == MAX_MACHINES
    assert addressing.CONTROL_PLANE not in {address.ip for address in plan}


@given(slot=slots)
def test_a_slot_s_addresses_lie_in_the_networks_meant_for_them(slot):
    address = Address(slot)

    assert address.ip in addressing.MACHINES_NETWORK
    assert address.pods.subnet_of(addressing.PODS_NETWORK)
    assert len(address.port) <= 15, "the kernel takes no longer name for a link"
    assert int(address.mac[:2], 16) & 3 == 2, (
        "local and not a group, or it may collide with a card's"
    )


@pytest.mark.parametrize("slot", [0, MAX_MACHINES + 1, -1])
def test_a_slot_outside_the_plan_is_refused(slot):
    with pytest.raises(ValueError, match="slot"):
        Address(slot)


@given(taken=sets(slots))
def test_the_lowest_free_slot_is_given(taken):
    slot = addressing.free_slot(taken)

    if slot is None:
        assert len(taken) == MAX_MACHINES
    else:
        assert slot not in taken
        assert set(range(1, slot)) <= taken


def test_a_machine_routes_to_the_pods_of_all_others_and_not_to_its_own():
    routes = addressing.pod_routes(3)

    assert len(routes) == MAX_MACHINES - 1
    assert not any(route.startswith(str(Address(3).pods)) for route in routes)
    assert f"{Address(7).pods} via {Address(7).ip}" in routes


def test_the_networks_of_machines_pods_and_services_are_apart():
    networks = [addressing.MACHINES_NETWORK, addressing.PODS_NETWORK, addressing.SERVICES_NETWORK]

    assert not any(a.overlaps(b) for a in networks for b in networks if a is not b)
    assert addressing.DNS_SERVICE in addressing.SERVICES_NETWORK
