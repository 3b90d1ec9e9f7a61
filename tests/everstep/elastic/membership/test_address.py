"""The address of this node."""

import pytest

from everstep.elastic.membership.address import local_address_to
from tests.ipv6 import needs_ipv6


@pytest.mark.parametrize(
    ("endpoint", "address"),
    [
        ("127.0.0.1:2379", "127.0.0.1"),
        pytest.param("[::1]:2379", "::1", marks=needs_ipv6),
        ("127.0.0.1,[::1]", "127.0.0.1"),
        (f"{'x' * 64}:2379,127.0.0.1:2379", "127.0.0.1"),  # a member that is gone has no address
        (f"{'x' * 64}:2379", None),  # too long for a DNS label: no lookup
        (",", None),
    ],
)
def test_a_node_has_an_address_of_the_same_family_as_etcd(
    endpoint: str, address: str | None
) -> None:
    assert local_address_to(endpoint) == address
