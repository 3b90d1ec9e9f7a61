"""Checksums of tensors: states that differ anywhere have different ones."""

from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.recovery.copying import (
    BLOCK_WORDS,
    _block_checksums,
    _constants,
    _products,
    checksums,
    compare,
)
from everstep.elastic.recovery.state_machine import StateReport, StepProgress, plan_copy
from everstep.elastic.transport.link import Link

BLOCK_BYTES = 8 * BLOCK_WORDS
SIZES = [1, 7, 8, 9, 16, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 13]


def random_bytes(size: int) -> torch.Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator())


@pytest.mark.parametrize("size", SIZES)
def test_every_byte_counts(size: int) -> None:
    tensor = random_bytes(size)
    (original,) = checksums([tensor])

    for position in {0, size // 2, size - 1}:
        changed = tensor.clone()
        changed[position] ^= 1
        assert checksums([changed]) != (original,), f"byte {position} of {size}"
    assert checksums([tensor.clone()]) == (original,)


@given(
    st.sampled_from([2, 100, 5_000, 20_000]),
    st.integers(0, 19_999),
    st.integers(0, 19_999),
    st.integers(1, 2**31 - 1),
)
def test_opposite_changes_of_two_numbers_do_not_cancel_out(
    count: int, first: int, second: int, change: int
) -> None:
    """A small step can add the smallest amount to one number and subtract it from another."""
    first, second = first % count, second % count
    if first == second:
        return
    tensor = torch.zeros(count, dtype=torch.int32)
    changed = tensor.clone()
    changed[first] += change
    changed[second] -= change

    assert checksums([tensor]) != checksums([changed])


@pytest.mark.parametrize("distance", [1, 2, BLOCK_WORDS, BLOCK_WORDS - 1])
def test_the_order_of_numbers_counts(distance: int) -> None:
    tensor = torch.arange(3 * BLOCK_WORDS, dtype=torch.int64)
    swapped = tensor.clone()
    swapped[[5, 5 + distance]] = tensor[[5 + distance, 5]]

    assert checksums([tensor]) != checksums([swapped])


def test_blocks_that_are_swapped_with_their_positions_do_not_cancel_out() -> None:
    """Words (i, j) and (j, i) have different constants, since each level has its own."""
    first, second = (
        torch.zeros(10 * BLOCK_WORDS, dtype=torch.int64),
        torch.zeros(10 * BLOCK_WORDS, dtype=torch.int64),
    )
    first[3 * BLOCK_WORDS + 7] = 1
    second[7 * BLOCK_WORDS + 3] = 1

    assert checksums([first]) != checksums([second])


def test_the_layout_in_memory_counts_and_not_the_order_of_dimensions() -> None:
    tensor = torch.randn(4, 8, 3, 3).contiguous(memory_format=torch.channels_last)

    assert checksums([tensor]) == checksums([tensor.permute(0, 2, 3, 1).reshape(-1)])


def test_tensors_without_numbers_have_a_checksum() -> None:
    assert checksums([]) == ()
    assert checksums([torch.zeros(0), torch.zeros(3)]) == (0, 0)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_products_on_a_gpu_equal_products_on_a_cpu(count: int) -> None:
    words = random_bytes(count * BLOCK_BYTES).view(torch.int64)

    products = _products(words.view(count, BLOCK_WORDS), _constants(0))

    assert products.tolist() == _block_checksums(words, 0).tolist()


class Peers:
    """A group of two: this worker's record meets a record of another one."""

    world_size = 2

    def __init__(self) -> None:
        self.records: list[torch.Tensor] = []

    def all_gather(self, record: torch.Tensor) -> list[torch.Tensor]:
        self.records.append(record)
        return self.records


def test_a_worker_without_a_state_lacks_tensors_of_zeros_too() -> None:
    """A copy that was interrupted leaves any numbers in them."""
    link = cast("Link", Peers())
    zeros, torn_tensor = torch.zeros(3), torch.ones(3)
    compare(link, StateReport(StepProgress(2, 10)), [zeros])

    plan = plan_copy(compare(link, StateReport(StepProgress()), [torn_tensor]))

    assert plan is not None
    assert plan.missing_tensors == {1: (0,)}


def test_the_constants_are_the_same_everywhere() -> None:
    """Workers of one group compare checksums, on any machine and with any version of torch."""
    assert _constants(0)[:2].tolist() == [5618105632776693099, 5632348190562398513]
    assert bool((_constants(1) % 2 == 1).all()), (
        "an even constant hides a change of the highest bit"
    )
