"""Ports of the rules of security groups."""

import pytest
from cloudtwin.providers.aws.network import PORTS


@pytest.mark.parametrize(
    ("protocol", "low", "high"), [("icmp", 8, 0), ("icmpv6", -1, -1), ("tcp", 0, 65535)]
)
def test_a_rule_has_a_range_of_ports_or_a_type_and_a_code_of_icmp(
    protocol: str, low: int, high: int
) -> None:
    inputs = {"ipProtocol": protocol, "fromPort": low, "toPort": high}

    assert not list(PORTS.violations(inputs))


def test_a_range_of_ports_does_not_end_before_it_begins() -> None:
    inputs = {"ipProtocol": "udp", "fromPort": 9, "toPort": 8}

    assert len(list(PORTS.violations(inputs))) == 1
