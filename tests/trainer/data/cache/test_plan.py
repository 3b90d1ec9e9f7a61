"""The decision about which shards a cache keeps, downloads and evicts."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis.strategies import DrawFn, composite, integers, lists, none, sets

from trainer.data.cache.plan import (
    CachePlan,
    CacheState,
    OtherData,
    limit_to_disk,
    plan,
    sort_by_need,
)


@composite
def states(draw: DrawFn) -> CacheState:
    """Draw a cache within its limit."""
    sizes = draw(lists(integers(1, 100), min_size=1, max_size=12))
    present = frozenset(draw(sets(integers(0, len(sizes) - 1))))
    others = [
        OtherData(f"other-{number}", size)
        for number, size in enumerate(draw(lists(integers(0, 200), max_size=4)))
    ]
    used_bytes = sum(sizes[shard] for shard in present) + sum(other.bytes for other in others)
    limit = draw(none() | integers(used_bytes, used_bytes + 500))
    return CacheState(sizes=sizes, complete_shards=present, other_data=others, limit=limit)


def apply(state: CacheState, decision: CachePlan) -> CacheState:
    """Return the cache after a plan."""
    return replace(
        state,
        complete_shards=state.complete_shards | set(decision.downloads),
        other_data=[other for other in state.other_data if other.name not in decision.evictions],
    )


def occupied_bytes(state: CacheState) -> int:
    """Return the number of bytes that all shards occupy."""
    return sum(state.sizes[shard] for shard in state.complete_shards) + sum(
        o.bytes for o in state.other_data
    )


@given(states(), lists(integers(-2, 14)))
def test_a_cache_never_exceeds_its_limit(state: CacheState, needed: list[int]) -> None:
    decision = plan(state, needed)

    assert state.limit is None or occupied_bytes(apply(state, decision)) <= state.limit
    assert len(set(decision.downloads)) == len(decision.downloads)
    assert not set(decision.downloads) & state.complete_shards, "a shard would be downloaded twice"


@given(states(), lists(integers(0, 11)))
def test_a_shard_is_left_out_only_if_it_does_not_fit(state: CacheState, needed: list[int]) -> None:
    after = apply(state, plan(state, needed))
    cached_bytes = sum(state.sizes[shard] for shard in after.complete_shards)

    for shard in set(range(len(state.sizes))) - after.complete_shards:
        assert state.limit is not None
        assert cached_bytes + state.sizes[shard] > state.limit
    assert plan(after, needed).downloads == (), "the cache would never be complete"


@given(states(), lists(integers(0, 11)))
def test_no_more_other_data_are_removed_than_necessary(
    state: CacheState, needed: list[int]
) -> None:
    decision = plan(state, needed)

    assert (
        list(decision.evictions)
        == [other.name for other in state.other_data][: len(decision.evictions)]
    ), "a more recently used data set would be removed first"
    if decision.evictions:
        without_last = replace(decision, evictions=decision.evictions[:-1])
        assert state.limit is not None
        assert occupied_bytes(apply(state, without_last)) > state.limit


@given(states(), lists(integers(0, 11)))
def test_needed_shards_come_first(state: CacheState, needed: list[int]) -> None:
    downloads = plan(replace(state, limit=None), needed).downloads

    missing = dict.fromkeys(
        s for s in needed if s < len(state.sizes) and s not in state.complete_shards
    )
    assert list(downloads[: len(missing)]) == list(missing)
    assert set(downloads) == set(range(len(state.sizes))) - state.complete_shards


def test_the_least_recently_used_data_set_is_evicted() -> None:
    state = CacheState(
        sizes=[60],
        complete_shards=frozenset(),
        other_data=[OtherData("old", 30), OtherData("recent", 30)],
        limit=100,
    )

    assert plan(state, []) == CachePlan(downloads=(0,), evictions=("old",))


@pytest.mark.parametrize(
    ("shards", "order"),
    [([], []), ([4, 2, 2], [2, 4]), ([7, 1, 3], [7, 1, 3]), ([5, 3, 3, 5], [5, 3])],
)
def test_shards_with_the_most_samples_come_first_then_the_earliest_needed(
    shards: list[int], order: list[int]
) -> None:
    assert sort_by_need(shards) == order


@given(states(), integers(-300, 300))
def test_a_part_of_the_disk_stays_free(state: CacheState, free_space: int) -> None:
    """`free_space` is the number of bytes that may still be written; it is negative if the disk is too full."""
    after = apply(state, plan(limit_to_disk(state, free_space), []))

    assert occupied_bytes(after) - occupied_bytes(state) <= max(0, free_space)
    assert state.limit is None or occupied_bytes(after) <= state.limit
