"""The exchange of `exact` mode: the same bits for any number of workers and any history of the group.

Floating-point sums depend on their order, and with the number of workers the order changes. So a
global batch is cut into shards of a fixed size, whatever the number of workers; each shard's
gradient is rounded to fixed point and summed in 64-bit integers, whose sum has no order. Batch
statistics likewise: each shard normalises by its own, and the running ones become the average over
shards. What is left to be equal is the arithmetic of one shard: the same kernels on the same kind of
processor, with the same number of threads.

Why not round the sum of a worker's shards once: which shards a worker has depends on how many
workers there are.
"""

from collections.abc import Sequence

import torch

from everstep.elastic.exchange import Total
from everstep.elastic.sampler import Ids

GRADIENT_SCALE = 2.0**36  # 1.5e-11 is the finest difference; sums up to 1.3e8 fit
STATISTIC_SCALE = 2.0**32  # times the samples of a global batch: up to a million times a thousand


def cut(ids: Ids, shard_size: int) -> list[Ids]:
    """A global batch as shards, which depend on nothing but the batch; the last may be smaller."""
    return [ids[first : first + shard_size] for first in range(0, len(ids), shard_size)]


class ExactExchange:
    """Sums of a step over all shards of all workers, in integers.

    Args:
        model: its parameters' gradients are summed, so each shard's loss must already be divided by
            the global batch.
        scalars: how many whole numbers ride along.
    """

    def __init__(self, model: torch.nn.Module, scalars: int) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = list(model.buffers())
        self._before = [buffer.clone() for buffer in self._buffers]
        tensors = [*self._parameters, *self._buffers]
        sizes = [tensor.numel() for tensor in tensors]
        device = self._parameters[0].device
        self._flat = torch.zeros(sum(sizes) + scalars, dtype=torch.int64, device=device)
        *parts, self._scalars = torch.split(self._flat, [*sizes, scalars])
        self._sums = [
            part.as_strided(tensor.shape, tuple(tensor.stride()))
            for part, tensor in zip(parts, tensors, strict=True)
        ]
        self._in_flight = False

    def clear(self) -> None:
        """Begin a step, or a shard's backward pass anew."""
        self._flat.zero_()
        _copy(self._before, self._buffers)
        self._in_flight = True
        for parameter in self._parameters:
            parameter.grad = None

    def roll_back(self) -> None:
        """Undo a step whose sum has not arrived, if there is one."""
        if self._in_flight:
            _copy(self._buffers, self._before)
        self._in_flight = False

    @torch.no_grad()
    def add_shard(self, samples: int) -> None:
        """Take one shard's gradients and statistics, and make room for the next shard."""
        count = len(self._parameters)
        for parameter, total in zip(self._parameters, self._sums, strict=False):
            if parameter.grad is not None:
                total.add_(_fixed(parameter.grad, GRADIENT_SCALE))
                parameter.grad = None
        for buffer, before, total in zip(
            self._buffers, self._before, self._sums[count:], strict=True
        ):
            if buffer.is_floating_point():
                total.add_(_fixed(buffer, STATISTIC_SCALE) * samples)
            else:  # a counter of batches
                total.add_(buffer - before)
        _copy(self._buffers, self._before)

    @torch.no_grad()
    def sum(self, samples: int, scalars: Sequence[int], total: Total) -> list[int]:
        """Exchange: gradients become the parameters' own, statistics are averaged, scalars returned.

        Args:
            samples: of the whole global batch.
            scalars: this worker's whole numbers, as many as were announced.
            total: sums over all workers.
        """
        self._scalars.copy_(torch.tensor(scalars, dtype=torch.int64))
        total(self._flat)
        self._in_flight = False
        count = len(self._parameters)
        for parameter, summed in zip(self._parameters, self._sums, strict=False):
            parameter.grad = (summed.double() / GRADIENT_SCALE).to(parameter.dtype)
        for buffer, summed in zip(self._buffers, self._sums[count:], strict=True):
            if buffer.is_floating_point():
                buffer.copy_(summed.double() / (STATISTIC_SCALE * samples))
            else:
                buffer.add_(summed)
        return [int(number) for number in self._scalars.tolist()]


def _fixed(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    """Rounded to whole multiples of 1/scale; scaling by a power of two is itself exact."""
    return (tensor.double() * scale).round_().to(torch.int64)


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)
