"""Rules about blocks of addresses that hold on any cloud; the clouds' own rules call them."""

import ipaddress
from collections.abc import Mapping
from itertools import combinations

from components.faults import Fault
from components.network.cidr import overlap

PRIVATE = tuple(
    map(ipaddress.IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"))
)
"""RFC 1918, and RFC 6598 for carriers' networks."""

RESERVED = (*PRIVATE, *map(ipaddress.IPv4Network, ("127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")))

WIDEST_PREFIX = 8  # no organisation has more than a /8


def is_private(path: str, cidr: str) -> list[Fault]:
    """Check that a network of our own uses addresses that are nobody's."""
    if any(ipaddress.IPv4Network(cidr).subnet_of(block) for block in PRIVATE):
        return []
    rule = "holds addresses of the internet, which nodes then could not reach"
    return [Fault(path, cidr, rule, "use a private block, such as 10.0.0.0/16")]


def not_reserved(path: str, cidr: str) -> list[Fault]:
    """Check that a range that may come in from the internet can come from there."""
    if not any(ipaddress.IPv4Network(cidr).overlaps(block) for block in RESERVED):
        return []
    rule = "holds addresses that never come from the internet"
    return [Fault(path, cidr, rule, "name your public address: https://checkip.amazonaws.com")]


def narrow_enough(path: str, cidr: str) -> list[Fault]:
    """Check that a range does not stand for everybody, as 0.0.0.0/0 and its two halves do."""
    if ipaddress.IPv4Network(cidr).prefixlen >= WIDEST_PREFIX:
        return []
    rule = "opens the API to the whole internet" if cidr == "0.0.0.0/0" else "is wider than a /8"
    return [
        Fault(path, cidr, rule, "name the addresses of your office or VPN, such as 203.0.113.7/32")
    ]


def disjoint(blocks: Mapping[str, str]) -> list[Fault]:
    """Check that no two blocks share an address; the first of two is the one at fault."""
    return [
        Fault(path, cidr, f"overlaps {other} ({block})", "choose a block beside it")
        for (path, cidr), (other, block) in combinations(blocks.items(), 2)
        if overlap(cidr, block)
    ]
