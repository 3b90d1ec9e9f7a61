"""Ports of the rules of security groups; `cases.py` has an invalid range."""

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
