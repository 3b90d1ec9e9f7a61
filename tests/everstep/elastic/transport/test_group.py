"""The network interface that a group uses, from the address of the pod."""

import os
from pathlib import Path

import pytest

from everstep.catalog.names import POD_IP_VARIABLE
from everstep.elastic.transport import group
from tests.ipv6 import needs_ipv6

LISTED_ADDRESSES = """\
00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
fd000000000000000000000000000002 07 40 00 82     net1
"""


def chosen_interfaces(address: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str | None, ...]:
    """Return the interfaces of gloo and NCCL for a pod with this address."""
    variables = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    monkeypatch.setattr(os, "environ", {POD_IP_VARIABLE: address})
    group.choose_interface()
    return tuple(os.environ.get(variable) for variable in variables)


@pytest.mark.parametrize("address", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_a_group_on_one_machine_uses_the_loopback_interface(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chosen_interfaces(address, monkeypatch) == ("lo", "lo")


@pytest.mark.parametrize(
    ("address", "interface"),
    [
        ("fd00::2", "net1"),
        ("fd00:0:0:0:0:0:0:2", "net1"),
        ("fe80::fc:ff:fe00:1%eth0", "eth0"),
        ("fd00::3", None),
        ("etcd:2379", None),
    ],
)
def test_a_pod_with_only_an_ipv6_address_uses_the_interface_with_it(
    address: str, interface: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "if_inet6").write_text(LISTED_ADDRESSES)
    monkeypatch.setattr(group, "_IPV6_ADDRESSES", tmp_path / "if_inet6")

    assert chosen_interfaces(address, monkeypatch) == (interface, interface)


def test_a_kernel_without_ipv6_lists_no_address(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(group, "_IPV6_ADDRESSES", tmp_path / "missing")

    assert chosen_interfaces("fd00::2", monkeypatch) == (None, None)


def test_an_ipv4_address_is_found_on_its_interface() -> None:
    assert group._interface_with("127.0.0.1") == "lo"
    assert group._interface_with("192.0.2.1") is None, (
        "no machine has an address that is reserved for documentation"
    )
