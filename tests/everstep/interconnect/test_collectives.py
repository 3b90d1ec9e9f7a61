"""Sizes and bandwidths of collectives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.interconnect.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    COLLECTIVES,
    ELEMENT_BYTES,
    MAX_BYTES,
    REDUCE_SCATTER,
    SEND_RECV,
    array_sizes,
    bus_bandwidth,
)


@pytest.mark.parametrize(
    ("collective", "ranks", "expected"),
    [
        # By the formulas of nccl-tests, for 1 GiB in 0.1 s: 10.737 GB/s times 2(n-1)/n, (n-1)/n or 1.
        (ALL_REDUCE, 2, 10.73741824e9),
        (ALL_REDUCE, 8, 18.79048192e9),
        (ALL_GATHER, 2, 5.36870912e9),
        (REDUCE_SCATTER, 8, 9.39524096e9),
        (SEND_RECV, 8, 10.73741824e9),
    ],
)
def test_the_bus_bandwidth_is_defined_as_in_nccl_tests(
    collective: str, ranks: int, expected: float
) -> None:
    assert bus_bandwidth(collective, ranks, 2**30, 0.1) == pytest.approx(expected)


@given(
    st.sampled_from(COLLECTIVES),
    st.integers(2, 64),
    st.integers(8, 2**12),
    st.integers(2**12, MAX_BYTES),
)
def test_every_array_has_equal_parts_of_whole_elements(
    collective: str, ranks: int, smallest: int, largest: int
) -> None:
    sizes = array_sizes(collective, ranks, smallest, largest)

    unit = ELEMENT_BYTES * (1 if collective in (ALL_REDUCE, SEND_RECV) else ranks)
    assert sizes == sorted(set(sizes)), "each size is measured once"
    assert all(size % unit == 0 and size >= unit for size in sizes)
    assert sizes[-1] <= largest, "memory was checked for the largest size"
    assert sizes[-1] > largest / 2 - unit, "the sizes reach the largest"


def test_the_sizes_of_an_all_reduce_double_from_8_bytes_to_4_gib() -> None:
    sizes = array_sizes(ALL_REDUCE, 2, 8, MAX_BYTES)

    assert sizes == [8 * 2**n for n in range(30)]
