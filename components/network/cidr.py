"""Splits a network's addresses among its zones: arithmetic alone, no cloud.

A zone's blocks depend on the network and on the zone's own letter, never on which other zones there
are or in what order they stand. Taking the blocks one after the other would waste less, but then a
zone put in front of the others moves all of theirs, and a subnet whose block changes is made anew,
with everything in it. Half of a private network is cheap; a cluster made anew is not.
"""

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SMALLEST_PREFIX, LARGEST_PREFIX = 21, 16  # AWS: at most /16; below /21 a zone has too few for pods
LETTERS = "abcdef"  # the most zones that a region has (us-east-1)
_EIGHTHS = 3  # bits: six eighths for the private blocks of six zones, one for all public ones


@dataclass(frozen=True, kw_only=True)
class ZoneBlocks:
    """The addresses of one zone, as CIDR blocks.

    Attributes:
        private: for nodes and pods; an eighth of the network.
        public: for the NAT gateway and load balancers; a sixty-fourth.
    """

    private: str
    public: str


def subnets(cidr: str, zones: Iterable[str]) -> Mapping[str, ZoneBlocks]:
    """Give each zone's blocks; none overlap, all lie in `cidr`.

    Args:
        cidr: the network's IPv4 block, /16 to /21, without host bits.
        zones: names that end in a letter from a to f, such as us-east-1a.

    Raises:
        ValueError: the block or a zone's name is unfit, which a stack's rules refuse earlier.
    """
    network = ipaddress.IPv4Network(cidr)
    if not LARGEST_PREFIX <= network.prefixlen <= SMALLEST_PREFIX:
        raise ValueError(f"{cidr} is no block from /{LARGEST_PREFIX} to /{SMALLEST_PREFIX}")
    eighths = list(network.subnets(prefixlen_diff=_EIGHTHS))
    shared = list(eighths[len(LETTERS)].subnets(prefixlen_diff=_EIGHTHS))
    blocks = {}
    for zone in zones:
        place = _place(zone)
        blocks[zone] = ZoneBlocks(private=str(eighths[place]), public=str(shared[place]))
    return blocks


def _place(zone: str) -> int:
    """Give a zone's place in its region: 0 for a."""
    if not zone or zone[-1] not in LETTERS:
        raise ValueError(f"{zone!r} is no zone: its last letter is none of {LETTERS}")
    return LETTERS.index(zone[-1])


def overlap(one: str, other: str) -> bool:
    """Say whether two blocks share an address."""
    return ipaddress.IPv4Network(one).overlaps(ipaddress.IPv4Network(other))
