"""Plan of a node's next downloads and evictions. Pure functions.

Every batch is a random sample of the data set, so all of its shards are needed equally often. A shard is
therefore never evicted for another shard of the same data set: if the limit is smaller than the data set, the
cached shards stay, and images of the others are read from the store. Only shards of other data sets are
removed, the least recently used first.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class CacheLimits:
    """Size limits of a cache.

    Attributes:
        bytes: maximum bytes of all shards; 0 for no limit.
        free_percent: percentage of the disk that stays free; 0 for no limit.
    """

    bytes: int = 0
    free_percent: int = 0


@dataclass(frozen=True)
class OtherData:
    """Shards of another data set in the same cache.

    Attributes:
        name: name of its folder.
        bytes: size of its shards.
    """

    name: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CacheState:
    """Contents of a cache.

    Attributes:
        sizes: bytes of each shard of the data set, by number.
        complete_shards: numbers of the complete shards.
        other_data: other data sets, the least recently used first.
        limit: maximum bytes of all shards; None for no limit.
    """

    sizes: Sequence[int]
    complete_shards: frozenset[int]
    other_data: Sequence[OtherData]
    limit: int | None


@dataclass(frozen=True)
class CachePlan:
    """Next downloads and evictions.

    Attributes:
        downloads: numbers of shards to download, in order.
        evictions: names of other data sets to remove before the downloads.
    """

    downloads: tuple[int, ...]
    evictions: tuple[str, ...] = ()


def sort_by_need(shards: Iterable[int]) -> list[int]:
    """Return the shards of upcoming samples, the most needed first, then in the order of their first need.

    Args:
        shards: number of the shard of each upcoming sample, in the order of the samples.
    """
    needs = Counter(shards)  # keeps the order of first need
    return sorted(needs, key=lambda shard: -needs[shard])


def plan(state: CacheState, needed_shards: Sequence[int]) -> CachePlan:
    """Return the shards to download, and the data sets to remove for them.

    Args:
        state: contents of the cache.
        needed_shards: numbers of shards that are needed soon, in order; the others follow by number.
    """
    missing_shards = [
        shard
        for shard in _order(needed_shards, len(state.sizes))
        if shard not in state.complete_shards
    ]
    occupied_bytes = sum(state.sizes[shard] for shard in state.complete_shards)
    downloads = (
        missing_shards
        if state.limit is None
        else _select_fitting(missing_shards, state.sizes, state.limit - occupied_bytes)
    )
    occupied_bytes += sum(state.sizes[shard] for shard in downloads)
    return CachePlan(
        tuple(downloads), _choose_evictions(state, occupied_bytes) if downloads else ()
    )


def limit_to_disk(state: CacheState, free_space: int) -> CacheState:
    """Return a state whose limit leaves a part of the disk free.

    Args:
        state: contents of the cache.
        free_space: bytes that may still be written; negative if the disk is too full already.
    """
    occupied_bytes = sum(state.sizes[shard] for shard in state.complete_shards)
    usable_bytes = occupied_bytes + sum(other.bytes for other in state.other_data) + free_space
    return replace(
        state, limit=usable_bytes if state.limit is None else min(state.limit, usable_bytes)
    )


def _order(needed_shards: Iterable[int], shards: int) -> list[int]:
    """Return all shards, the needed ones first."""
    return [
        shard for shard in dict.fromkeys([*needed_shards, *range(shards)]) if 0 <= shard < shards
    ]


def _select_fitting(shards: Collection[int], sizes: Sequence[int], free_bytes: int) -> list[int]:
    """Return the shards that fit into these bytes, in order; a large shard is skipped for smaller ones."""
    chosen = []
    for shard in shards:
        if sizes[shard] <= free_bytes:
            chosen.append(shard)
            free_bytes -= sizes[shard]
    return chosen


def _choose_evictions(state: CacheState, occupied_bytes: int) -> tuple[str, ...]:
    """Return the other data sets to remove for `occupied_bytes` bytes of this one, the least recently used first."""
    if state.limit is None:
        return ()
    other_bytes = sum(other.bytes for other in state.other_data)
    evicted_names = []
    for other in state.other_data:
        if occupied_bytes + other_bytes <= state.limit:
            break
        evicted_names.append(other.name)
        other_bytes -= other.bytes
    return tuple(evicted_names)
