"""The division of a share into micro-batches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.strategies import builds, integers, lists, none, one_of

from everstep.elastic.data_order.leftover import Span, merge_spans, remaining_spans, split_share
from everstep.elastic.training.in_flight import InFlight, intersect_spans
from everstep.elastic.training.microbatches import MicrobatchLimit, split_spans
from everstep.errors import EverstepError

CPU = torch.device("cpu")


def span(first: int, size: int) -> Span:
    return first, first + size


SPANS = lists(builds(span, integers(0, 200), integers(0, 60)), max_size=6)


def units(spans: tuple[Span, ...]) -> list[int]:
    return [unit for first, last in spans for unit in range(first, last)]


@given(SPANS, one_of(none(), integers(1, 70)))
def test_each_unit_is_in_one_micro_batch_within_the_bound(
    spans: list[Span], bound: int | None
) -> None:
    groups = split_spans(spans, bound)

    computed = [unit for group in groups for unit in units(group)]
    assert computed == units(merge_spans(spans)), "each sample once, in order"
    sizes = [len(units(group)) for group in groups]
    if sizes:
        assert max(sizes) - min(sizes) <= 1, (
            "a small last micro-batch would be normalized by few samples"
        )
        assert max(sizes) <= (bound or max(sizes))
        assert len(sizes) == (-(-sum(sizes) // bound) if bound else 1)


@given(integers(1, 300), SPANS, integers(1, 9), integers(1, 40))
def test_kept_spans_and_the_shares_of_all_workers_contain_each_sample_once(
    batch: int, done_spans: list[Span], workers: int, bound: int
) -> None:
    kept_spans = tuple((first, min(last, batch)) for first, last in done_spans if first < batch)
    computed = units(merge_spans(kept_spans))
    for rank in range(workers):
        share = split_share(remaining_spans(batch, kept_spans), rank, workers)
        computed += [unit for group in split_spans(share, bound) for unit in units(group)]

    assert sorted(computed) == list(range(batch))


@given(SPANS, SPANS)
def test_common_units_are_those_in_both(spans: list[Span], other_spans: list[Span]) -> None:
    assert units(intersect_spans(spans, other_spans)) == sorted(
        set(units(merge_spans(spans))) & set(units(merge_spans(other_spans)))
    )


def test_the_units_of_several_micro_batches_add_up() -> None:
    ids = np.arange(10, 13)

    in_two_parts = (
        InFlight()
        .with_units(((0, 2),), 1.0, ids[:2], 4, unusable=True)
        .with_units(((2, 3),), 0.5, ids[2:], 4)
    )

    assert in_two_parts == InFlight().with_units(((0, 3),), 1.5, ids, 4, unusable=True)
    assert in_two_parts.unusable_shards == 1


def test_discarded_units_that_the_group_relies_on_are_recomputed() -> None:
    in_flight = InFlight(own_spans=((0, 4), (8, 12)), group_spans=((0, 6),), loss=2.0, samples=8)

    result = in_flight.without_gradients()

    assert result == InFlight(group_spans=((0, 6),), spans_to_recompute=((0, 4),))
    assert (
        result.with_units(((0, 4),), 1.0, torch.arange(4).numpy(), 0).without_gradients() == result
    )


def test_a_bound_is_halved_and_remembered_for_the_device_type(tmp_path: Path) -> None:
    limit = MicrobatchLimit(None, tmp_path, CPU)
    assert limit.samples is None
    assert limit.lower(100) == 50
    assert limit.lower(50) == 25

    assert MicrobatchLimit(None, tmp_path, CPU).samples == 25
    assert MicrobatchLimit(8, tmp_path, CPU).samples == 8
    assert MicrobatchLimit(100, tmp_path, CPU).samples == 25, "more did not fit"


def test_the_smallest_bound_of_all_workers_with_a_device_type_is_saved(tmp_path: Path) -> None:
    first_limit, second_limit = (MicrobatchLimit(None, tmp_path, CPU) for _ in range(2))

    first_limit.lower(6)
    second_limit.lower(100)

    assert MicrobatchLimit(None, tmp_path, CPU).samples == 3


def test_bounds_that_cannot_be_read_are_determined_again(tmp_path: Path) -> None:
    (tmp_path / "microbatch.json").write_text('{"cpu": "many"')
    limit = MicrobatchLimit(None, tmp_path, CPU)
    assert limit.samples is None

    limit.lower(4)

    assert MicrobatchLimit(None, tmp_path, CPU).samples == 2


def test_a_sample_that_does_not_fit_is_an_error_with_the_device() -> None:
    with pytest.raises(EverstepError, match=r"one sample does not fit .* cpu"):
        MicrobatchLimit(None, None, CPU).lower(1)
