"""Fixed-point numbers: NumPy and torch compute the same bits."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.strategies import booleans, floats, integers, lists

from everstep.elastic.transport import fixed_point
from everstep.elastic.transport.fixed_point import FixedPoint

CPU = torch.device("cpu")
SCALE = 2.0**20
FITTING = floats(-1000, 1000, width=32)
DTYPES = (torch.float32, torch.float64)  # converted by NumPy and by torch


@given(values=lists(FITTING, min_size=1, max_size=40), is_first=booleans())
def test_numpy_and_torch_round_half_to_even_and_add_the_same_integers(
    values: list[float], is_first: bool
) -> None:
    numbers = np.array(values, dtype=np.float32)
    before = np.arange(len(values), dtype=np.int32)
    rounded = np.rint(numbers.astype(np.float64) * SCALE).astype(np.int32)
    for dtype in DTYPES:
        sums = torch.from_numpy(before.copy())

        [magnitude] = FixedPoint(CPU).add(
            [torch.from_numpy(numbers).to(dtype)], [sums], [SCALE], is_first=is_first
        )

        assert sums.tolist() == (rounded + (0 if is_first else before)).tolist()
        assert float(magnitude) == np.abs(numbers).max()


@given(values=lists(integers(-(2**31), 2**31 - 1), min_size=1, max_size=40))
def test_numpy_and_torch_restore_the_same_numbers_and_bounds(values: list[int]) -> None:
    sums = torch.tensor(values, dtype=torch.int32)
    expected = sums.float() * 2.0**-25
    for numbers in (torch.empty(len(values)), torch.empty(len(values), dtype=torch.bfloat16)):
        [bounds] = FixedPoint(CPU).restore([sums], [numbers], [2.0**-25])

        assert bounds.tolist() == [min(values), max(values)]
        if numbers.dtype == torch.float32:
            assert torch.equal(numbers, expected)
        else:
            assert torch.allclose(numbers.float(), expected, rtol=2**-7)


def test_numbers_may_replace_their_sums_in_the_same_memory() -> None:
    sums = torch.arange(-5, 6, dtype=torch.int32)

    FixedPoint(CPU).restore([sums], [sums.view(torch.float32)], [0.5])

    assert sums.view(torch.float32).tolist() == [number / 2 for number in range(-5, 6)]


def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = torch.randn(100, generator=torch.Generator().manual_seed(0))
    unsplit, parts = (torch.ones(100, dtype=torch.int32) for _ in range(2))
    magnitude = FixedPoint(CPU).add([numbers], [unsplit], [SCALE], is_first=False)
    monkeypatch.setattr(fixed_point, "CHUNK_NUMBERS", 7)
    converter = FixedPoint(CPU)

    assert converter.add([numbers], [parts], [SCALE], is_first=False) == magnitude
    assert torch.equal(parts, unsplit)
    restored = [torch.empty(100) for _ in range(2)]
    bounds = [FixedPoint(CPU).restore([unsplit], [restored[0]], [0.5])]
    bounds.append(converter.restore([parts], [restored[1]], [0.5]))
    assert torch.equal(*restored)
    assert torch.equal(*bounds)


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_tensor_has_its_own_scale_magnitude_and_bounds(dtype: torch.dtype) -> None:
    numbers = [torch.tensor([1.0, -3.0], dtype=dtype), torch.tensor([0.25], dtype=dtype)]
    sums = [torch.zeros(len(part), dtype=torch.int32) for part in numbers]
    converter, scales = FixedPoint(CPU), [4.0, 16.0]

    magnitudes = converter.add(numbers, sums, scales, is_first=True)

    assert magnitudes.tolist() == [3.0, 0.25]
    assert [part.tolist() for part in sums] == [[4, -12], [4]]
    restored = [torch.empty_like(part) for part in numbers]
    bounds = converter.restore(sums, restored, [1 / scale for scale in scales])
    assert bounds.tolist() == [[-12, 4], [4, 4]]
    assert all(map(torch.equal, restored, numbers))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_nan_among_the_numbers_is_their_largest_magnitude(index: int, dtype: torch.dtype) -> None:
    numbers = torch.tensor([1.0, 2.0, 3.0], dtype=dtype)
    numbers[index] = math.nan

    with np.errstate(invalid="ignore"):  # NaN has no integer value
        magnitude = FixedPoint(CPU).add(
            [numbers], [torch.zeros(3, dtype=torch.int32)], [SCALE], is_first=True
        )

    assert math.isnan(magnitude)
