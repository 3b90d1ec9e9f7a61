"""The units of a step that remain after a failure, and the workers' shares of them."""

import itertools

from hypothesis import given
from hypothesis.strategies import integers, lists, tuples

from everstep.elastic.data_order.leftover import Span, merge_spans, remaining_spans, split_share
from everstep.elastic.data_order.sampler import share

UNITS = 40
SPANS = lists(
    tuples(integers(0, UNITS), integers(0, UNITS)).map(lambda ends: (min(ends), max(ends))),
    max_size=5,
)


def units(spans: tuple[Span, ...]) -> list[int]:
    return [unit for first, last in spans for unit in range(first, last)]


@given(SPANS)
def test_merging_changes_no_unit_and_leaves_gaps_between_spans(spans: list[Span]) -> None:
    result = merge_spans(spans)

    assert units(result) == sorted({unit for span in spans for unit in range(*span)})
    assert all(span[1] < next_span[0] for span, next_span in itertools.pairwise(result))


@given(SPANS)
def test_done_and_remaining_spans_are_the_whole_step(done_spans: list[Span]) -> None:
    assert sorted(
        [*units(merge_spans(done_spans)), *units(remaining_spans(UNITS, done_spans))]
    ) == list(range(UNITS))


@given(SPANS, integers(1, 7), integers(1, 9))
def test_shares_cover_the_remaining_units_once_and_are_nearly_equal_and_not_too_small(
    done_spans: list[Span], world_size: int, min_units: int
) -> None:
    missing_spans = remaining_spans(UNITS, done_spans)
    parts = [
        units(split_share(missing_spans, rank, world_size, min_units=min_units))
        for rank in range(world_size)
    ]

    assert [unit for part in parts for unit in part] == units(missing_spans)
    sizes = [len(part) for part in parts if part] or [0]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= min(min_units, len(units(missing_spans)))
    assert len(sizes) == world_size or len(units(missing_spans)) < min_units * world_size


@given(integers(0, UNITS), integers(1, 7))
def test_parts_of_a_new_step_are_the_shares_of_the_workers(count: int, world_size: int) -> None:
    for rank in range(world_size):
        units_of_rank = units(split_share(remaining_spans(count, ()), rank, world_size))
        assert units_of_rank == list(range(count))[share(count, rank, world_size)]
