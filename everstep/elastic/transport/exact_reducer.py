"""Gradient sums of `exact` mode: bit-identical for any number of workers and any group history.

Floating-point sums depend on their order, which changes with the number of workers. So a global
batch is split into shards of a fixed size, regardless of the number of workers; each shard's gradient is
rounded to integer multiples of a unit, and integers are summed, whose sum does not depend on the
order. The same holds for batch statistics: each shard is normalized by its own statistics, and the
running statistics become the average over shards. Only the arithmetic of one shard must be equal everywhere: the same
kernels on the same GPU model, or on the same CPU model with the same number of threads.

Gradients are summed as 32-bit integers, which are no larger than floats. Each parameter has its own
unit, a power of two that follows its gradients: the range of the next step is at least 64 times the largest
sum of the last step, shards may fill half of it, and the unit is between 2^-25 and 2^-24 of that sum. If a
shard does not fit, all workers are informed before gradients are sent, choose a coarser unit, and compute the
step again. Units depend on sums only, so they are the same for any number of workers; they are part of the
state that joiners receive and checkpoints contain.

The sum of a worker's shards is not rounded once instead, because the number of workers determines which shards
a worker has.
"""

from collections.abc import Sequence

import numpy as np
import torch

from everstep.elastic.data_order.sampler import Ids
from everstep.elastic.transport.buffers import Buffers
from everstep.elastic.transport.fixed_point import FixedPoint
from everstep.elastic.transport.reducer import AllReduce, dense_local_tensor
from everstep.elastic.transport.tensor_lists import copy_all

BITS = 31  # magnitude bits of a sum
HEADROOM = 6
"""Bits between the largest sum of the last step and the range; shards may fill half of the range."""
MIN_RANGE = -2  # finer units than 2^-33 gain nothing; a gradient that was 0 needs a range, too
FIRST_RANGE = 6
MAX_RANGE = 20  # exponent limit of a gradient: beyond a million, training has diverged
STATISTIC_SCALE = 2.0**30
"""Scale of statistics in a sum: exact for thousands of samples with values up to a thousand."""


def split_into_shards(ids: Ids, shard_size: int) -> list[Ids]:
    """Split a global batch into shards that depend on the batch only; the last may be smaller."""
    return [ids[first : first + shard_size] for first in range(0, len(ids), shard_size)]


class ExactReducer:
    """Sums of a step over all shards of all workers, in integers.

    A step: `clear`, then for each shard `begin_shard`, the backward pass and `add_shard`, then `sum`. After
    `roll_back`, continue with further shards, or clear.

    Args:
        model: its parameters' gradients are summed, so each shard's loss must already be divided by
            the global batch.
        scalars: number of additional integers to sum, each sum below 2^53.
        shards: number of shards in a global batch, whose sum must fit.

    Attributes:
        ranges: for each parameter, the exponent of the power of two below which its sums must stay, int32; part of the
            training state.
    """

    def __init__(self, model: torch.nn.Module, scalars: int, shards: int) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = Buffers(model)
        device = self._parameters[0].device
        self._sizes = [parameter.numel() for parameter in self._parameters]
        gradients = [torch.empty_like(parameter, device="meta") for parameter in self._parameters]
        self._layouts = [(gradient.shape, gradient.stride()) for gradient in gradients]
        self._own_sums = torch.zeros(sum(self._sizes), dtype=torch.int32, device=device)
        # Sums of integers are exact in float64, too, and there are few of these.
        self._flat_sizes = [
            sum(buffer.numel() for buffer in self._buffers.averaged),
            sum(buffer.numel() for buffer in self._buffers.counters),
            len(self._parameters),
            scalars,
        ]
        self._own_scalars_flat = torch.zeros(
            sum(self._flat_sizes), dtype=torch.float64, device=device
        )
        self._averages, self._counts, self._overflows, self._scalars = torch.split(
            self._own_scalars_flat, self._flat_sizes
        )
        self._allocate_reduce_buffers()
        self._fixed_point = FixedPoint(device)
        self._bounds = torch.zeros(len(self._parameters), 2, dtype=torch.int32, device=device)
        self._shards = shards
        self._is_empty = True
        self._in_flight = self._sending = False
        self.ranges = torch.empty(len(self._parameters), dtype=torch.int32, device=device)
        self.reset_ranges()

    def _allocate_reduce_buffers(self) -> None:
        """Allocate the buffers that are reduced in place, so that this worker's own sums remain."""
        self._received_sums = torch.empty_like(self._own_sums)
        self._summed_flat = torch.empty_like(self._own_scalars_flat)

    @property
    def has_gradients(self) -> bool:
        """True if a backward pass has reached a parameter in this shard."""
        return any(parameter.grad is not None for parameter in self._parameters)

    @property
    def summed_bytes(self) -> int:
        """Number of bytes that a worker contributes to the sums of one step."""
        return self._own_sums.nbytes + self._own_scalars_flat.nbytes

    @property
    def sending(self) -> bool:
        """True if sums with other workers have started in this step."""
        return self._sending

    def close(self) -> None:
        """Do nothing: no hooks are registered."""

    def reset_ranges(self) -> None:
        """Reset the units for a new run, whose gradients are unknown."""
        self.ranges.fill_(FIRST_RANGE)

    def clear(self) -> None:
        """Start a step, or restart it."""
        self._is_empty = True
        self._own_scalars_flat.zero_()
        self._buffers.save()
        self.begin_shard()

    def begin_shard(self) -> None:
        """Start a shard; discard an unfinished one."""
        self._in_flight = True
        self._buffers.begin_pass()
        for parameter in self._parameters:
            parameter.grad = None

    def roll_back(self) -> bool:
        """Restore the statistics from before an unfinished step; return True if its shards so far remain valid."""
        was_in_flight = self._in_flight
        if was_in_flight:
            self._buffers.restore()
        if self._sending:
            # An operation of the old group may still write to the old buffers.
            self._allocate_reduce_buffers()
        self._in_flight = self._sending = False
        return was_in_flight

    def discard(self) -> None:
        """Discard a step whose sum has arrived: restore the statistics from before it."""
        self._buffers.restore()

    @torch.no_grad()
    def add_shard(self, samples: int) -> bool:
        """Add one shard's gradients and statistics, and clear the gradients for the next shard.

        Returns:
            False if a gradient is not finite or too large for any unit: the sum is then invalid, and the
            caller must inform the other workers.

        Raises:
            EverstepError: the forward pass has changed a buffer that is neither a statistic nor a counter.
        """
        self._buffers.end_pass()
        magnitudes = self._add_gradients()
        self._is_empty = False
        self._add_statistics(samples)
        self._buffers.restore()
        return self._check_ranges(magnitudes)

    def _add_gradients(self) -> torch.Tensor:
        """Add and clear the gradients; return the largest magnitude of each, float64, shape (parameters,)."""
        own_sums, exponents = torch.split(self._own_sums, self._sizes), self.ranges.tolist()
        gradients = [parameter.grad for parameter in self._parameters]
        # In memory order: autograd lays gradients out like parameters.
        flat_gradients = {
            index: dense_local_tensor(gradient.detach()).as_strided((gradient.numel(),), (1,))
            for index, gradient in enumerate(gradients)
            if gradient is not None
        }
        for index, parameter in enumerate(self._parameters):
            parameter.grad = None
            if index not in flat_gradients and self._is_empty:
                own_sums[index].zero_()
        magnitudes = torch.zeros(
            len(self._parameters), dtype=torch.float64, device=self._own_sums.device
        )
        if flat_gradients:
            with np.errstate(over="ignore", invalid="ignore"):  # a gradient may not fit
                magnitudes[list(flat_gradients)] = self._fixed_point.add(
                    list(flat_gradients.values()),
                    [own_sums[index] for index in flat_gradients],
                    [2.0 ** (BITS - exponents[index]) for index in flat_gradients],
                    is_first=self._is_empty,
                ).double()
        return magnitudes

    def _add_statistics(self, samples: int) -> None:
        """Add the averaged buffers, weighted by the shard's samples, and the shard's increments of the counters."""
        if self._buffers.averaged:
            statistics = _flatten(self._buffers.averaged).double() * STATISTIC_SCALE
            self._averages.add_(statistics.round_() * samples)
        if self._buffers.counters:
            saved_counters = _flatten(self._buffers.saved_counters)
            self._counts.add_(_flatten(self._buffers.counters) - saved_counters)

    @torch.no_grad()
    def sum(self, samples: int, scalars: Sequence[int], all_reduce: AllReduce) -> list[int] | None:
        """Sum over all workers: set the parameters' gradients, average statistics, return the scalars.

        Args:
            samples: number of samples in the global batch.
            scalars: this worker's integers, as many as the constructor's `scalars`.
            all_reduce: function that sums over all workers.

        Returns:
            None if some shard did not fit: the units are coarser now, and the step must be computed again.

        Raises:
            PeerLostError: the sum did not arrive; this worker's shards are kept.
        """
        self._scalars.copy_(torch.tensor(scalars, dtype=torch.float64))
        if self._is_empty:
            self._own_sums.zero_()
        self._sending = True
        all_reduce(self._summed_flat.copy_(self._own_scalars_flat))
        averages, counts, overflows, scalar_sums = torch.split(self._summed_flat, self._flat_sizes)
        if (overflows > 0).any():
            self.ranges.add_(HEADROOM * (overflows > 0)).clamp_(max=MAX_RANGE)
            self._sending = False
            return None
        all_reduce(self._received_sums.copy_(self._own_sums))
        self._in_flight = self._sending = False
        self._set_gradients()
        self._set_statistics(averages / samples)
        for counter, count in zip(
            self._buffers.counters, _split(counts, self._buffers.counters), strict=True
        ):
            counter.add_(count.to(counter.dtype))
        return [int(scalar_sum) for scalar_sum in scalar_sums.tolist()]

    def _set_statistics(self, averages: torch.Tensor) -> None:
        """Set the averaged buffers; elements that no shard has changed keep the digits that the sum rounds off.

        Args:
            averages: averages over the samples, in units of 1 / `STATISTIC_SCALE`.
        """
        if not self._buffers.averaged:
            return
        saved = _flatten(self._buffers.saved_averaged).double()
        is_unchanged = averages == (saved * STATISTIC_SCALE).round_()
        elements = torch.where(is_unchanged, saved, averages / STATISTIC_SCALE)
        copy_all(self._buffers.averaged, _split(elements, self._buffers.averaged))

    def _set_gradients(self) -> None:
        """Set the parameters' gradients to the received sums, in the same memory if they are float32."""
        received_sums = torch.split(self._received_sums, self._sizes)
        flat_gradients = [
            sums.view(torch.float32)
            if parameter.dtype == torch.float32
            else torch.empty(sums.shape, dtype=parameter.dtype, device=parameter.device)
            for parameter, sums in zip(self._parameters, received_sums, strict=True)
        ]
        units = [2.0 ** (exponent - BITS) for exponent in self.ranges.tolist()]
        self._bounds = self._fixed_point.restore(received_sums, flat_gradients, units)
        for parameter, flat, (shape, stride) in zip(
            self._parameters, flat_gradients, self._layouts, strict=True
        ):
            parameter.grad = flat.as_strided(shape, stride, flat.storage_offset())

    def adapt_ranges(self) -> None:
        """Choose the next step's units from the received sums; only after a finite step."""
        ranges = []
        for (min_sum, max_sum), exponent in zip(
            self._bounds.tolist(), self.ranges.tolist(), strict=True
        ):
            new_range = max(-min_sum, max_sum).bit_length() - BITS + exponent + HEADROOM
            ranges.append(max(MIN_RANGE, min(new_range, MAX_RANGE)))
        self.ranges.copy_(torch.tensor(ranges))

    def _check_ranges(self, magnitudes: torch.Tensor) -> bool:
        """Record parameters whose gradient exceeds its range; return False if one exceeds the widest range."""
        # The part of a range that one shard may fill: half of an equal share, as a margin for rounding.
        share = 0.5 / self._shards
        # A non-finite value fails the comparison, too.
        if not bool((magnitudes < 2.0**MAX_RANGE * share).all()):
            return False
        self._overflows += (magnitudes >= torch.exp2(self.ranges.double()) * share).to(
            self._overflows
        )
        return True


def _flatten(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the elements of all tensors, concatenated."""
    return torch.cat([tensor.flatten() for tensor in tensors])


def _split(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return views of `flat`, one for each tensor, in its shape."""
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]
