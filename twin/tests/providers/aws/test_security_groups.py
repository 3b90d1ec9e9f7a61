"""Ports of security group rules; `cases.py` has an invalid range."""

import pytest
from cloudtwin.providers.aws.security_groups import PORTS


@pytest.mark.parametrize(
    ("protocol", "low", "high"), [("icmp", 8, 0), ("icmpv6", -1, -1), ("tcp", 0, 65535)]
)
def test_a_rule_has_a_port_range_or_an_icmp_type_and_code(
    protocol: str, low: int, high: int
) -> None:
    inputs = {"ipProtocol": protocol, "fromPort": low, "toPort": high}

    assert not list(PORTS.violations(inputs))
