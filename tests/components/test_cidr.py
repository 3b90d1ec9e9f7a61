"""Address blocks: the subnets of a split are disjoint, large enough and stable."""

import ipaddress
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.cidr import (
    MAX_VPC_PREFIX_LENGTH,
    MIN_VPC_PREFIX_LENGTH,
    ZONE_LETTERS,
    ZoneBlocks,
    overlap,
    subnets,
)

networks = st.builds(
    lambda address, prefix: str(ipaddress.IPv4Network((address, prefix), strict=False)),
    st.integers(0, 2**32 - 1),
    st.integers(MIN_VPC_PREFIX_LENGTH, MAX_VPC_PREFIX_LENGTH),
)
zones = st.lists(st.sampled_from(ZONE_LETTERS), unique=True, min_size=1).map(
    lambda letters: [f"us-east-1{letter}" for letter in letters]
)


@given(cidr=networks, names=zones)
def test_subnets_are_disjoint_and_within_the_network(cidr: str, names: list[str]) -> None:
    blocks_by_zone = subnets(cidr, names)

    blocks = [
        ipaddress.IPv4Network(b) for z in blocks_by_zone.values() for b in (z.private, z.public)
    ]
    assert len(blocks) == 2 * len(names)
    assert all(block.subnet_of(ipaddress.IPv4Network(cidr)) for block in blocks)
    assert not any(block.overlaps(other) for block, other in combinations(blocks, 2))


@given(cidr=networks, names=zones, data=st.data())
def test_a_zone_keeps_its_blocks_when_other_zones_change(
    cidr: str, names: list[str], data: st.DataObject
) -> None:
    zone = data.draw(st.sampled_from(names))

    assert subnets(cidr, names)[zone] == subnets(cidr, [zone])[zone], (
        "a changed block replaces the subnet and the node groups in it"
    )


@given(cidr=networks, names=zones)
def test_private_subnets_are_large_enough_for_pods_and_public_ones_for_load_balancers(
    cidr: str, names: list[str]
) -> None:
    for blocks in subnets(cidr, names).values():
        assert ipaddress.IPv4Network(blocks.private).num_addresses >= 256
        assert ipaddress.IPv4Network(blocks.public).prefixlen <= 27, (
            "a load balancer needs a subnet of at least a /27"
        )


def test_the_default_network_is_split_as_documented() -> None:
    assert subnets("10.0.0.0/16", ["us-east-1a", "us-east-1b"]) == {
        "us-east-1a": ZoneBlocks(private="10.0.0.0/19", public="10.0.192.0/22"),
        "us-east-1b": ZoneBlocks(private="10.0.32.0/19", public="10.0.196.0/22"),
    }


@pytest.mark.parametrize(
    ("cidr", "message"),
    [
        ("10.0.0.0/15", "is not a block from /16 to /21"),
        ("10.0.0.0/22", "is not a block from /16 to /21"),
        ("10.0.0.1/16", "has host bits set"),
    ],
)
def test_a_block_that_cannot_be_split_is_refused(cidr: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        subnets(cidr, ["us-east-1a"])


@pytest.mark.parametrize("zone", ["", "us-east-1", "us-east-1z"])
def test_a_zone_that_does_not_end_in_a_letter_from_a_to_f_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="is not a zone"):
        subnets("10.0.0.0/16", [zone])


def test_blocks_overlap_if_one_contains_the_other() -> None:
    assert overlap("10.0.0.0/16", "10.0.8.0/24")
    assert overlap("10.0.8.0/24", "10.0.0.0/16")
    assert not overlap("10.0.0.0/16", "10.1.0.0/16")
