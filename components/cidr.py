"""Division of a network's addresses among its zones.

The blocks of a zone depend on the network and on the letter of the zone, never on the other zones or
on their order. Consecutive blocks would waste fewer addresses, but a zone inserted before the others
would move all their blocks, and a subnet whose block changes is replaced with everything in it. Unused
addresses of a private network are cheap; replacing a cluster is not.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

MIN_VPC_PREFIX_LENGTH = 16  # limit of AWS: a VPC is at most a /16
MAX_VPC_PREFIX_LENGTH = 21  # a smaller VPC has too few pod addresses in each zone
ZONE_LETTERS = "abcdef"  # us-east-1, the region with the most zones, has six
# Bits that divide a block into eighths: six eighths for the private blocks of six zones, one for all public blocks.
_EIGHTH_BITS = 3


@dataclass(frozen=True, kw_only=True)
class ZoneBlocks:
    """The CIDR blocks of one zone.

    Attributes:
        private: block of nodes and pods; an eighth of the network.
        public: block of the NAT gateway and load balancers; a sixty-fourth of the network.
    """

    private: str
    public: str


def subnets(cidr: str, zones: Iterable[str]) -> Mapping[str, ZoneBlocks]:
    """Return the blocks of each zone, which do not overlap and are within `cidr`.

    Args:
        cidr: IPv4 block of the network, /16 to /21, without host bits.
        zones: names that end in a letter from a to f, such as us-east-1a.

    Raises:
        ValueError: the block or a zone is not valid; the rules of the configuration refuse both
            earlier.
    """
    network = ipaddress.IPv4Network(cidr)
    if not MIN_VPC_PREFIX_LENGTH <= network.prefixlen <= MAX_VPC_PREFIX_LENGTH:
        raise ValueError(
            f"{cidr} is not a block from /{MIN_VPC_PREFIX_LENGTH} to /{MAX_VPC_PREFIX_LENGTH}"
        )
    eighths = list(network.subnets(prefixlen_diff=_EIGHTH_BITS))
    public_blocks = list(eighths[len(ZONE_LETTERS)].subnets(prefixlen_diff=_EIGHTH_BITS))
    blocks = {}
    for zone in zones:
        index = _zone_index(zone)
        blocks[zone] = ZoneBlocks(private=str(eighths[index]), public=str(public_blocks[index]))
    return blocks


def _zone_index(zone: str) -> int:
    """Return the index of a zone in its region: 0 for a."""
    if not zone or zone[-1] not in ZONE_LETTERS:
        raise ValueError(f"{zone!r} is not a zone: its last letter must be one of {ZONE_LETTERS}")
    return ZONE_LETTERS.index(zone[-1])


def overlap(first: str, second: str) -> bool:
    """Return True if two blocks share an address."""
    return ipaddress.IPv4Network(first).overlaps(ipaddress.IPv4Network(second))
