"""Checksums of tensors: the changes that they detect, and equal results on all devices and machines."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.recovery.checksums import (
    BLOCK,
    _constants,
    _cpu_sums,
    _gpu_sums,
    checksums,
    word_sums,
)

BLOCK_BYTES = 4 * BLOCK
SIZES = [1, 7, 8, 9, 16, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES + 13]


def random_bytes(size: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("compute", [checksums, word_sums])
@pytest.mark.parametrize("size", SIZES)
def test_a_changed_byte_changes_the_checksum(
    size: int, compute: Callable[[list[torch.Tensor]], tuple[int, ...]]
) -> None:
    tensor = random_bytes(size)
    original = compute([tensor])

    for position in {0, size // 2, size - 1}:
        changed = tensor.clone()
        changed[position] ^= 1
        assert compute([changed]) != original, f"byte {position} of {size}"
    assert compute([tensor.clone()]) == original


CHANGES: list[Callable[[torch.Tensor], torch.Tensor]] = [
    torch.neg,
    lambda numbers: 2 * numbers,
    lambda numbers: torch.nextafter(numbers, torch.tensor(torch.inf)),
    lambda numbers: torch.nextafter(numbers, torch.tensor([torch.inf, -torch.inf])),
    lambda numbers: numbers.flip(0),
    torch.zeros_like,
]
"""Changes of two numbers that cancel out in many sums."""


@given(
    st.sampled_from([2, 100, 2 * BLOCK + 3, 9 * BLOCK]),
    st.integers(0, 9 * BLOCK),
    st.integers(0, 9 * BLOCK),
    st.sampled_from(CHANGES),
    st.integers(0, 2**32),
)
def test_changes_of_two_numbers_do_not_cancel_out(
    count: int, first: int, second: int, change: Callable[[torch.Tensor], torch.Tensor], seed: int
) -> None:
    positions = [first % count, second % count]
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(seed))
    changed = tensor.clone()
    changed[positions] = change(tensor[positions])

    is_equal = torch.equal(changed.view(torch.int32), tensor.view(torch.int32))
    assert (checksums([tensor]) == checksums([changed])) == is_equal


@pytest.mark.parametrize("change", [torch.neg, lambda numbers: 2 * numbers], ids=["sign", "double"])
@pytest.mark.parametrize("offset", [0, 1])
def test_changes_of_high_bits_do_not_cancel_out(
    change: Callable[[torch.Tensor], torch.Tensor], offset: int
) -> None:
    """Numbers at odd positions are the high halves of words."""
    tensor = torch.randn(2 * BLOCK, generator=torch.Generator().manual_seed(0))
    original = checksums([tensor])

    for first in range(0, 200, 2):
        positions = [first + offset, 2 * BLOCK - 2 - first + offset]
        changed = tensor.clone()
        changed[positions] = change(tensor[positions])
        assert checksums([changed]) != original, positions


def test_the_sum_of_words_misses_opposite_changes() -> None:
    """For this reason the sum of words does not decide which tensors a worker that is behind receives."""
    tensor = torch.tensor([3, 0, 8, 0], dtype=torch.int32)
    changed = torch.tensor([4, 0, 7, 0], dtype=torch.int32)

    assert word_sums([tensor]) == word_sums([changed])
    assert checksums([tensor]) != checksums([changed])


def test_numbers_at_swapped_positions_of_their_blocks_do_not_cancel_out() -> None:
    """Numbers (i, j) and (j, i) have different constants, since each level has its own."""
    first, second = (torch.zeros(10 * BLOCK, dtype=torch.int32) for _ in range(2))
    first[6 * BLOCK + 14] = 1
    second[14 * BLOCK // 2 + 12] = 1

    assert checksums([first]) != checksums([second])


def test_the_order_in_memory_counts_and_not_the_order_of_dimensions() -> None:
    tensor = torch.randn(4, 8, 3, 3).contiguous(memory_format=torch.channels_last)

    assert checksums([tensor]) == checksums([tensor.permute(0, 2, 3, 1).reshape(-1)])


@pytest.mark.parametrize("compute", [checksums, word_sums])
def test_empty_tensors_and_zeros_have_the_checksum_0(
    compute: Callable[[list[torch.Tensor]], tuple[int, ...]],
) -> None:
    assert compute([]) == ()
    assert compute([torch.zeros(0), torch.zeros(3)]) == (0, 0)


@pytest.mark.parametrize("count", [0, 1, 2, 70])
def test_the_implementations_for_gpus_and_cpus_compute_the_same(count: int) -> None:
    blocks = random_bytes(count * BLOCK_BYTES).view(torch.int32).view(count, BLOCK)

    assert _gpu_sums(blocks, _constants(0)).tolist() == _cpu_sums(blocks, _constants(0)).tolist()


def test_the_constants_are_the_same_on_every_machine() -> None:
    assert _constants(0)[:2].tolist() == [5618105632776693099, 5632348190562398513]
    assert not torch.equal(_constants(0), _constants(1))
