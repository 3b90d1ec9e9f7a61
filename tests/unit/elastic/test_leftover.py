import itertools

from hypothesis import given
from hypothesis.strategies import integers, lists, tuples

from everstep.elastic.leftover import Span, merged, part, rest
from everstep.elastic.sampler import share

UNITS = 40
spans_of_a_step = lists(
    tuples(integers(0, UNITS), integers(0, UNITS)).map(lambda ends: (min(ends), max(ends))),
    max_size=5,
)


def units(spans: tuple[Span, ...]) -> list[int]:
    return [unit for first, last in spans for unit in range(first, last)]


@given(spans_of_a_step)
def test_merging_changes_no_unit_and_leaves_gaps_between_spans(spans):
    found = merged(spans)

    assert units(found) == sorted({unit for span in spans for unit in range(*span)})
    assert all(one[1] < other[0] for one, other in itertools.pairwise(found))


@given(spans_of_a_step)
def test_what_is_done_and_the_rest_are_the_step(done):
    assert sorted([*units(merged(done)), *units(rest(UNITS, done))]) == list(range(UNITS))


@given(spans_of_a_step, integers(1, 7), integers(1, 9))
def test_parts_are_the_whole_once_differ_by_one_unit_at_most_and_are_not_too_small(
    done, world_size, least
):
    left = rest(UNITS, done)
    parts = [units(part(left, rank, world_size, least=least)) for rank in range(world_size)]

    assert [unit for one in parts for unit in one] == units(left)
    sizes = [len(one) for one in parts if one] or [0]
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= min(least, len(units(left)))
    assert len(sizes) == world_size or len(units(left)) < least * world_size


@given(integers(0, UNITS), integers(1, 7))
def test_of_a_fresh_step_a_part_is_the_worker_s_share(count, world_size):
    for rank in range(world_size):
        fresh = units(part(rest(count, ()), rank, world_size))
        assert fresh == list(range(count))[share(count, rank, world_size)]
