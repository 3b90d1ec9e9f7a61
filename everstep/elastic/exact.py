"""The exchange of `exact` mode: the same bits for any number of workers and any history of the group.

Floating-point sums depend on their order, and with the number of workers the order changes. So a
global batch is cut into shards of a fixed size, whatever the number of workers; each shard's
gradient is rounded to fixed point, and whole numbers are summed, whose sum has no order. Batch
statistics likewise: each shard normalises by its own, and the running ones become the average over
shards. What is left to be equal is the arithmetic of one shard: the same kernels on the same kind of
processor, with the same number of threads.

Whole numbers are kept in float64, where sums below 2^53 are exact: processors without AVX-512
convert floating-point numbers to 64-bit integers one by one, which took longer than everything else.

Why not round the sum of a worker's shards once: which shards a worker has depends on how many
workers there are.
"""

from collections.abc import Iterator, Sequence

import torch

from everstep.elastic.exchange import Total
from everstep.elastic.sampler import Ids

GRADIENT_SCALE = 2.0**36  # 1.5e-11 is the finest difference
STATISTIC_SCALE = (
    2.0**30
)  # times the samples of a global batch: thousands, of values up to a thousand
LARGEST = (
    2.0**10
)  # of a shard's gradient, whose mean loss is of the order of 1; 128 such shards fit
CHUNK = 2**17  # numbers rounded at a time: they stay in the processor's cache


def cut(ids: Ids, shard_size: int) -> list[Ids]:
    """A global batch as shards, which depend on nothing but the batch; the last may be smaller."""
    return [ids[first : first + shard_size] for first in range(0, len(ids), shard_size)]


class ExactExchange:
    """Sums of a step over all shards of all workers, in whole numbers.

    Args:
        model: its parameters' gradients are summed, so each shard's loss must already be divided by
            the global batch.
        scalars: how many whole numbers ride along, each sum below 2^53.
    """

    def __init__(self, model: torch.nn.Module, scalars: int) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = list(model.buffers())
        self._before = [buffer.clone() for buffer in self._buffers]
        tensors = [*self._parameters, *self._buffers]
        sizes = [tensor.numel() for tensor in tensors]
        device = self._parameters[0].device
        self._flat = torch.zeros(sum(sizes) + scalars, dtype=torch.float64, device=device)
        *parts, self._scalars = torch.split(self._flat, [*sizes, scalars])
        self._sums = parts[: len(self._parameters)]
        self._statistics = [
            part.view(buffer.shape)
            for part, buffer in zip(parts[len(self._parameters) :], self._buffers, strict=True)
        ]
        self._chunk = CHUNK if device.type == "cpu" else 2**24
        self._scratch = torch.empty(self._chunk, dtype=torch.float32, device=device)
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

    def discard(self) -> None:
        """Forget a step whose sum has arrived: statistics are again what they were before it."""
        _copy(self._buffers, self._before)

    @torch.no_grad()
    def add_shard(self, samples: int) -> bool:
        """Take one shard's gradients and statistics, and make room for the next shard.

        False where a gradient is too large for fixed point, or no number at all: the step's sum is
        then of no use, and the caller has to tell the others.
        """
        squares = []
        for parameter, total in zip(self._parameters, self._sums, strict=True):
            if parameter.grad is not None:
                squares += self._add(parameter.grad, total)
                parameter.grad = None
        for buffer, before, total in zip(
            self._buffers, self._before, self._statistics, strict=True
        ):
            if buffer.is_floating_point():
                total.add_((buffer.double() * STATISTIC_SCALE).round_() * samples)
            else:  # a counter of batches
                total.add_(buffer - before)
        _copy(self._buffers, self._before)
        return not squares or bool(torch.stack(squares).max() < LARGEST**2)

    @torch.no_grad()
    def sum(self, samples: int, scalars: Sequence[int], total: Total) -> list[int]:
        """Exchange: gradients become the parameters' own, statistics are averaged, scalars returned.

        Args:
            samples: of the whole global batch.
            scalars: this worker's whole numbers, as many as were announced.
            total: sums over all workers.
        """
        self._scalars.copy_(torch.tensor(scalars, dtype=torch.float64))
        total(self._flat)
        self._in_flight = False
        for parameter, summed in zip(self._parameters, self._sums, strict=True):
            parameter.grad = torch.empty_like(parameter)
            for part, whole in self._chunks(parameter.grad, summed):
                torch.mul(whole, 1 / GRADIENT_SCALE, out=part)
        for buffer, summed in zip(self._buffers, self._statistics, strict=True):
            if buffer.is_floating_point():
                buffer.copy_(summed / (STATISTIC_SCALE * samples))
            else:
                buffer.add_(summed.to(buffer.dtype))
        return [int(number) for number in self._scalars.tolist()]

    def _add(self, gradient: torch.Tensor, total: torch.Tensor) -> list[torch.Tensor]:
        """Add it, rounded to whole multiples of 1/scale; the sums of squares of its pieces.

        Scaling by a power of two is itself exact. A sum of squares is not less than any of them, and
        no number where one is none: the cheapest bound on the largest.
        """
        squares = []
        for part, whole in self._chunks(gradient, total):
            squares.append(torch.dot(part, part))
            scaled = torch.mul(part, GRADIENT_SCALE, out=self._scratch[: len(part)])
            whole.add_(scaled.round_())
        return squares

    def _chunks(
        self, tensor: torch.Tensor, total: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Both in pieces, in the order of the tensor's memory: autograd lays gradients out as parameters."""
        flat = tensor.as_strided((tensor.numel(),), (1,))
        return zip(torch.split(flat, self._chunk), torch.split(total, self._chunk), strict=True)


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)
