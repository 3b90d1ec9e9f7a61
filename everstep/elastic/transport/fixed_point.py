"""Conversion of gradients to multiples of a unit, in 32-bit integers, and back.

`exact_reducer` calls it for each parameter of each shard, so it decides the cost of mode `exact`. Memory is
processed in chunks that stay in the CPU's cache, so that each gradient and each sum is read once.

On a CPU the float32 gradients are converted by NumPy: in torch the largest magnitude alone takes
as long as the rest. All other gradients are converted by torch. Both yield the same bits: scaling
by a power of two is exact, both round half to even, and integers have no rounding.
"""

from collections.abc import Iterator

import numpy as np
import torch

CHUNK_NUMBERS = (
    2**16
)  # two scratch buffers and two operands of 256 KiB: half of a usual second-level cache
GPU_CHUNK_NUMBERS = 2**24  # each chunk costs six launches; the scratch buffers take 128 MiB


class FixedPoint:
    """Converter for the gradients of one device, with its scratch memory."""

    def __init__(self, device: torch.device) -> None:
        self._is_processor = device.type == "cpu"
        self._chunk = CHUNK_NUMBERS if self._is_processor else GPU_CHUNK_NUMBERS
        self._scaled = torch.empty(self._chunk, dtype=torch.float32, device=device)
        self._rounded = torch.empty(self._chunk, dtype=torch.int32, device=device)

    def add(
        self, numbers: torch.Tensor, sums: torch.Tensor, scale: float, *, is_first: bool
    ) -> torch.Tensor:
        """Add numbers, rounded to integer multiples of 1/scale, to their sums.

        A number that does not fit becomes an arbitrary integer: the sum is then not used.

        Args:
            numbers: floating-point numbers, shape (n,).
            sums: int32, shape (n,).
            scale: a power of two.
            is_first: whether the sums are overwritten.

        Returns:
            The largest magnitude of the numbers, one number; NaN if one of them is NaN.
        """
        if self._is_processor and numbers.dtype == torch.float32:
            return self._add_by_numpy(numbers, sums, scale, is_first=is_first)
        bounds = list[torch.Tensor]()
        for part, part_sums in self._chunks(numbers, sums):
            bounds += torch.aminmax(part)
            scaled = torch.mul(part, scale, out=self._scaled[: len(part)]).round_()
            if is_first:
                part_sums.copy_(scaled)
            else:
                part_sums.add_(self._rounded[: len(part)].copy_(scaled))
        return torch.stack(bounds).abs().max()

    def _add_by_numpy(
        self, numbers: torch.Tensor, sums: torch.Tensor, scale: float, *, is_first: bool
    ) -> torch.Tensor:
        bounds = list[np.float32]()
        all_scaled, all_rounded = self._scaled.numpy(), self._rounded.numpy()
        all_numbers, all_sums = numbers.numpy(), sums.numpy()
        for first in range(0, len(all_numbers), self._chunk):
            part = all_numbers[first : first + self._chunk]
            part_sums, scaled = all_sums[first : first + self._chunk], all_scaled[: len(part)]
            bounds += [np.maximum.reduce(part), np.minimum.reduce(part)]
            np.multiply(part, np.float32(scale), out=scaled)
            np.rint(scaled, out=scaled)
            if is_first:
                np.copyto(part_sums, scaled, casting="unsafe")
            else:
                rounded = all_rounded[: len(part)]
                np.copyto(rounded, scaled, casting="unsafe")
                np.add(part_sums, rounded, out=part_sums)
        return torch.from_numpy(np.abs(np.array(bounds, dtype=np.float32))).max()

    def restore(self, sums: torch.Tensor, numbers: torch.Tensor, unit: float) -> torch.Tensor:
        """Set numbers to their sums times the unit, a power of two.

        Args:
            sums: int32, shape (n,).
            numbers: floating-point numbers, shape (n,); they may be in the memory of the sums.
            unit: a power of two.

        Returns:
            Minimum and maximum of the sums, int32, shape (2,).
        """
        if self._is_processor and numbers.dtype == torch.float32:
            return self._restore_by_numpy(sums, numbers, unit)
        bounds = torch.stack(torch.aminmax(sums))
        for part_sums, part in self._chunks(sums, numbers):
            if part.dtype == torch.float32:
                torch.mul(self._scaled[: len(part)].copy_(part_sums), unit, out=part)
            else:
                part.copy_(part_sums).mul_(unit)
        return bounds

    def _restore_by_numpy(
        self, sums: torch.Tensor, numbers: torch.Tensor, unit: float
    ) -> torch.Tensor:
        bounds = list[np.int32]()
        all_sums, all_numbers, all_scaled = sums.numpy(), numbers.numpy(), self._scaled.numpy()
        for first in range(0, len(all_sums), self._chunk):
            part_sums = all_sums[first : first + self._chunk]
            scaled = all_scaled[: len(part_sums)]
            bounds += [np.maximum.reduce(part_sums), np.minimum.reduce(part_sums)]
            np.copyto(scaled, part_sums, casting="same_kind")
            np.multiply(scaled, np.float32(unit), out=all_numbers[first : first + self._chunk])
        limits = torch.from_numpy(np.array(bounds, dtype=np.int32))
        return torch.stack(torch.aminmax(limits))

    def _chunks(
        self, first: torch.Tensor, second: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(torch.split(first, self._chunk), torch.split(second, self._chunk), strict=True)
