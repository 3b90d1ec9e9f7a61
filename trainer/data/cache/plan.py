"""Plan of a node's next downloads and evictions. Pure functions.

Every batch is a random choice of all samples, so that no shard of the data set is needed less than the
others for long. Hence shards in use are never evicted for others: if the limit is smaller than the data
set, the shards that are there stay, and images of the others are read from the store. Only shards of
other data sets are removed, the least recently used first.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Size limits of a cache.

    Attributes:
        bytes: maximum bytes of all shards; 0 for no limit.
        free_percent: part of the disk that stays free.
    """

    bytes: int = 0
    free_percent: int = 0


@dataclass(frozen=True)
class OtherData:
    """Shards of another data set in the same cache.

    Attributes:
        name: name of its folder.
        bytes: their size.
    """

    name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CacheState:
    """Contents of a cache.

    Attributes:
        sizes: bytes of each shard of the data set, by number.
        present: numbers of the complete ones.
        others: other data sets, the least recently used first.
        limit: maximum bytes of all shards; None for no limit.
    """

    sizes: Sequence[int]
    present: frozenset[int]
    others: Sequence[OtherData]
    limit: int | None


@dataclass(frozen=True)
class Plan:
    """Next downloads and evictions.

    Attributes:
        fetch: numbers of shards to download, in order.
        evict: names of other data sets to remove before that.
    """

    fetch: tuple[int, ...]
    evict: tuple[str, ...] = ()


def by_need(shards: Iterable[int]) -> list[int]:
    """Return the shards of upcoming samples, sorted by their number of samples, then by when they are needed.

    Args:
        shards: number of the shard of each upcoming sample, in the order of the samples.
    """
    needs = Counter(shards)  # keeps the order of first need
    return sorted(needs, key=lambda shard: -needs[shard])


def plan(state: CacheState, needed: Sequence[int]) -> Plan:
    """Return the shards to download, and the data sets to remove for them.

    Args:
        state: contents of the cache.
        needed: numbers of shards that are needed soon, in order; the others follow by number.
    """
    missing = [shard for shard in _order(needed, len(state.sizes)) if shard not in state.present]
    occupied = sum(state.sizes[shard] for shard in state.present)
    fetch = (
        missing if state.limit is None else _fitting(missing, state.sizes, state.limit - occupied)
    )
    occupied += sum(state.sizes[shard] for shard in fetch)
    return Plan(tuple(fetch), _to_evict(state, occupied) if fetch else ())


def within_disk(state: CacheState, free_space: int) -> CacheState:
    """Return a state whose limit leaves a part of the disk free.

    Args:
        state: contents of the cache.
        free_space: bytes that may still be written; negative if the disk is too full already.
    """
    occupied = sum(state.sizes[shard] for shard in state.present)
    usable = occupied + sum(other.bytes for other in state.others) + free_space
    return replace(state, limit=usable if state.limit is None else min(state.limit, usable))


def _order(needed: Iterable[int], shards: int) -> list[int]:
    """Return all shards, the needed ones first."""
    return [shard for shard in dict.fromkeys([*needed, *range(shards)]) if 0 <= shard < shards]


def _fitting(shards: Collection[int], sizes: Sequence[int], free: int) -> list[int]:
    """Return the shards that fit into these bytes, in order; a large one is skipped for smaller ones."""
    chosen = []
    for shard in shards:
        if sizes[shard] <= free:
            chosen.append(shard)
            free -= sizes[shard]
    return chosen


def _to_evict(state: CacheState, occupied: int) -> tuple[str, ...]:
    """Return as few other data sets as necessary for `occupied` bytes of this one."""
    if state.limit is None:
        return ()
    others = sum(other.bytes for other in state.others)
    evicted = []
    for other in state.others:
        if occupied + others <= state.limit:
            break
        evicted.append(other.name)
        others -= other.bytes
    return tuple(evicted)
