"""Rules about address blocks for all clouds, called by the rules of each cloud."""

import ipaddress
from collections.abc import Mapping
from itertools import combinations

from components.cidr import overlap
from components.config.faults import ConfigFault
from components.config.section import PRIVATE_BLOCKS

UNROUTABLE_BLOCKS = (
    *PRIVATE_BLOCKS,
    *map(ipaddress.IPv4Network, ("127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")),
)

MIN_PREFIX_LENGTH = 8  # a wider range is not the network of one organization


def public_address_faults(path: str, cidr: str) -> list[ConfigFault]:
    """Check that a network uses private addresses."""
    if any(ipaddress.IPv4Network(cidr).subnet_of(block) for block in PRIVATE_BLOCKS):
        return []
    rule = "contains public addresses, which nodes could not reach"
    return [ConfigFault(path, cidr, rule, "use a private block, such as 10.0.0.0/16")]


def unroutable_faults(path: str, cidr: str) -> list[ConfigFault]:
    """Check that a range with access from the internet is publicly routable."""
    if not any(ipaddress.IPv4Network(cidr).overlaps(block) for block in UNROUTABLE_BLOCKS):
        return []
    rule = "contains addresses that are not routable on the internet"
    return [ConfigFault(path, cidr, rule, "use your public address: https://checkip.amazonaws.com")]


def wide_range_faults(path: str, cidr: str) -> list[ConfigFault]:
    """Check that a range is at most a /8: 0.0.0.0/0 or its two halves would admit the whole internet."""
    if ipaddress.IPv4Network(cidr).prefixlen >= MIN_PREFIX_LENGTH:
        return []
    rule = "opens the API to the whole internet" if cidr == "0.0.0.0/0" else "is wider than a /8"
    return [
        ConfigFault(
            path, cidr, rule, "list the addresses of your office or VPN, such as 203.0.113.7/32"
        )
    ]


def overlap_faults(blocks: Mapping[str, str]) -> list[ConfigFault]:
    """Check that no two blocks overlap; the fault is reported for the first of the two."""
    return [
        ConfigFault(path, cidr, f"overlaps {other} ({block})", "choose a disjoint block")
        for (path, cidr), (other, block) in combinations(blocks.items(), 2)
        if overlap(cidr, block)
    ]
