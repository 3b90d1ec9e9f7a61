"""Addresses of the form HOST:PORT, and the endpoint of etcd."""

import pytest

from everstep.catalog.addresses import etcd_address, etcd_endpoints, split_address


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


def test_any_other_address_needs_a_port() -> None:
    with pytest.raises(ValueError, match="invalid literal for int"):
        split_address("node")


def test_a_rendezvous_endpoint_may_list_several_endpoints_of_etcd() -> None:
    assert etcd_endpoints("etcd-0:2379, etcd-1,") == ("etcd-0:2379", "etcd-1")
