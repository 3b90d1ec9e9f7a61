"""Conversion of gradients to multiples of a unit, in 32-bit integers, and back.

`exact_reducer` calls it once for each shard, so it decides the cost of mode `exact`. On a CPU the float32
gradients are converted by NumPy, in chunks that stay in the CPU's cache, so that each gradient and each sum
is read once: in torch the search for the largest magnitude takes as long as the rest. All other gradients are
converted by torch, where on a GPU one kernel handles many tensors. Both yield the same bits: scaling by a
power of two is exact, both round half to even, and integers have no rounding.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch

from everstep.elastic.transport.tensor_lists import copy_all

CHUNK_NUMBERS = 2**16
"""Numbers per chunk: two scratch buffers and two operands of 256 KiB each are half of a typical L2 cache."""


class FixedPoint:
    """Converter for the gradients of one device, with its scratch memory."""

    def __init__(self, device: torch.device) -> None:
        self._is_cpu = device.type == "cpu"
        chunk_numbers = CHUNK_NUMBERS if self._is_cpu else 0
        self._scaled = np.empty(chunk_numbers, dtype=np.float32)
        self._rounded = np.empty(chunk_numbers, dtype=np.int32)

    def add(
        self,
        numbers: Sequence[torch.Tensor],
        sums: Sequence[torch.Tensor],
        scales: Sequence[float],
        *,
        is_first: bool,
    ) -> torch.Tensor:
        """Add the numbers of k tensors, rounded to integer multiples of 1/scale, to their sums.

        A number that does not fit becomes an arbitrary integer: the sum is then not used.

        Args:
            numbers: floating-point numbers, each of shape (n,) with a tensor's own n.
            sums: int32, with the shapes of the numbers.
            scales: powers of two.
            is_first: whether the sums are overwritten.

        Returns:
            The largest magnitude of each tensor's numbers, shape (k,); NaN if one of them is NaN.
        """
        if not self._converts_by_numpy(numbers):
            return _add_by_torch(numbers, sums, scales, is_first=is_first)
        magnitudes = [
            self._add_by_numpy(part.numpy(), part_sums.numpy(), scale, is_first=is_first)
            for part, part_sums, scale in zip(numbers, sums, scales, strict=True)
        ]
        return torch.from_numpy(np.array(magnitudes, dtype=np.float32))

    def restore(
        self, sums: Sequence[torch.Tensor], numbers: Sequence[torch.Tensor], units: Sequence[float]
    ) -> torch.Tensor:
        """Set the numbers of k tensors to their sums times the unit.

        Args:
            sums: int32, each of shape (n,) with a tensor's own n.
            numbers: floating-point numbers with the shapes of the sums; they may share memory with the sums.
            units: powers of two.

        Returns:
            Minimum and maximum of each tensor's sums, int32, shape (k, 2).
        """
        if not self._converts_by_numpy(numbers):
            return _restore_by_torch(sums, numbers, units)
        bounds = [
            self._restore_by_numpy(part_sums.numpy(), part.numpy(), unit)
            for part_sums, part, unit in zip(sums, numbers, units, strict=True)
        ]
        return torch.from_numpy(np.array(bounds, dtype=np.int32).reshape(-1, 2))

    def _converts_by_numpy(self, numbers: Sequence[torch.Tensor]) -> bool:
        return self._is_cpu and all(part.dtype == torch.float32 for part in numbers)

    def _add_by_numpy(
        self, numbers: np.ndarray, sums: np.ndarray, scale: float, *, is_first: bool
    ) -> np.float32:
        bounds = list[np.float32]()
        chunk = len(self._scaled)
        for first in range(0, len(numbers), chunk):
            part = numbers[first : first + chunk]
            part_sums, scaled = sums[first : first + chunk], self._scaled[: len(part)]
            bounds += [np.maximum.reduce(part), np.minimum.reduce(part)]
            np.multiply(part, np.float32(scale), out=scaled)
            np.rint(scaled, out=scaled)
            if is_first:
                np.copyto(part_sums, scaled, casting="unsafe")
            else:
                rounded = self._rounded[: len(part)]
                np.copyto(rounded, scaled, casting="unsafe")
                np.add(part_sums, rounded, out=part_sums)
        magnitude: np.float32 = np.abs(np.array(bounds, dtype=np.float32)).max()
        return magnitude

    def _restore_by_numpy(
        self, sums: np.ndarray, numbers: np.ndarray, unit: float
    ) -> tuple[np.int32, np.int32]:
        bounds = list[np.int32]()
        chunk = len(self._scaled)
        for first in range(0, len(sums), chunk):
            part_sums = sums[first : first + chunk]
            scaled = self._scaled[: len(part_sums)]
            bounds += [np.maximum.reduce(part_sums), np.minimum.reduce(part_sums)]
            np.copyto(scaled, part_sums, casting="same_kind")
            np.multiply(scaled, np.float32(unit), out=numbers[first : first + chunk])
        return min(bounds), max(bounds)


def _add_by_torch(
    numbers: Sequence[torch.Tensor],
    sums: Sequence[torch.Tensor],
    scales: Sequence[float],
    *,
    is_first: bool,
) -> torch.Tensor:
    magnitudes = torch.stack(torch._foreach_norm(list(numbers), math.inf))
    scaled = torch._foreach_mul(list(numbers), list(scales))
    torch._foreach_round_(scaled)
    if is_first:
        copy_all(sums, scaled)
    else:
        rounded = [torch.empty_like(part_sums) for part_sums in sums]
        copy_all(rounded, scaled)
        torch._foreach_add_(list(sums), rounded)
    return magnitudes


def _restore_by_torch(
    sums: Sequence[torch.Tensor], numbers: Sequence[torch.Tensor], units: Sequence[float]
) -> torch.Tensor:
    max_sums = torch.stack(torch._foreach_max(list(sums)))
    complements = torch._foreach_neg(list(sums))
    torch._foreach_sub_(complements, 1)  # ~sum: the complement of the smallest integer exists
    min_sums = ~torch.stack(torch._foreach_max(complements))
    restored = [torch.empty_like(part) for part in numbers]
    copy_all(restored, sums)
    torch._foreach_mul_(restored, list(units))
    copy_all(numbers, restored)
    return torch.stack([min_sums, max_sums], dim=1)
