"""Addresses of this node and of etcd."""

import pytest

from everstep.elastic.membership.address import address_towards, etcd_address, split_address
from tests.ipv6 import needs_ipv6


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("etcd", ("etcd", 2379)),
        ("etcd:2380", ("etcd", 2380)),
        ("[2001:db8::7]", ("2001:db8::7", 2379)),
        ("[2001:db8::7]:2380", ("2001:db8::7", 2380)),
        ("2001:db8::7:2380", ("2001:db8::7", 2380)),
    ],
)
def test_an_endpoint_of_etcd_may_lack_its_port(endpoint: str, address: tuple[str, int]) -> None:
    assert etcd_address(endpoint) == address


def test_another_address_needs_a_port() -> None:
    with pytest.raises(ValueError, match="int"):
        split_address("node")


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("127.0.0.1:2379", "127.0.0.1"),
        pytest.param("[::1]:2379", "::1", marks=needs_ipv6),
        ("127.0.0.1,[::1]", "127.0.0.1"),
        ("name.invalid", None),
    ],
)
def test_a_node_has_an_address_of_the_family_of_etcd(endpoint: str, address: str | None) -> None:
    assert address_towards(endpoint) == address
