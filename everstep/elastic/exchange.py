"""The one exchange of a training step: gradients, statistics, and numbers that ride along.

All gradients live in one flat buffer (each parameter's `.grad` is a view of it), with room at its
end for normalisation statistics and a few scalars. So a step costs one all-reduce, a worker without
samples takes part like any other, and the question "does anybody want to regroup?" is answered for
all workers at the same step at no cost.

Where the network is slower than the backward pass, gradients need not wait for its end: they are cut
into buckets, the last layers' first, and the sum of each begins as soon as it is complete. The order
is the same on all workers; one without samples begins them all at the end.

Why not DistributedDataParallel: it averages over workers, which is wrong for uneven shares, and a
worker whose share is empty would not take part in its exchange.
"""

import functools
from collections.abc import Callable, Sequence

import torch

Total = Callable[[torch.Tensor], None]
"""Sums a tensor over all workers, in place; `Seat.sum`."""

Begin = Callable[[torch.Tensor], Callable[[], None]]
"""Begins to sum a tensor over all workers, in place; the answer waits for the end; `Seat.begin_sum`."""

BUCKET_BYTES = 16 << 20  # of gradients whose sum begins together


class StepExchange:
    """Sums of a step over all workers.

    Args:
        model: its parameters' gradients are summed, so each worker's loss must already be divided by
            the global batch; its floating-point buffers (running means and variances) become the
            average over samples, so that all workers keep the same.
        scalars: how many numbers ride along.
        compress: whether gradients travel in bfloat16: half the bytes and three digits, for slow
            networks. Among processes of one machine it takes longer than it saves.
        bucket_bytes: gradients whose sum begins together, where it begins before the backward pass
            ends.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        scalars: int,
        *,
        compress: bool = False,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self._parameters = [
            parameter for parameter in model.parameters() if parameter.requires_grad
        ]
        self._buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        self._sizes = [
            *(tensor.numel() for tensor in (*self._parameters, *self._buffers)),
            scalars,
        ]
        self._compress = compress
        self._all_buffers = list(model.buffers())
        self._before = [buffer.clone() for buffer in self._all_buffers]
        self._buckets = _buckets([p.numel() * 4 for p in self._parameters], bucket_bytes)
        self._bucket_of = {i: n for n, bucket in enumerate(self._buckets) for i in bucket}
        for index, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call] # torch's
                functools.partial(self._arrived, index)
            )
        self._begin: Begin | None = None
        self._missing: list[int] = []
        self._ends: list[Callable[[], None]] = []
        self._in_flight = self._travelling = False
        self._lay_out()

    def _lay_out(self) -> None:
        """Take memory for one step's sum, and cut it up."""
        device = self._parameters[0].device
        self._flat = torch.zeros(sum(self._sizes), dtype=torch.float32, device=device)
        parts = torch.split(self._flat, self._sizes)
        self._gradients = [
            part.as_strided(parameter.shape, _dense_strides(parameter))
            for part, parameter in zip(parts, self._parameters, strict=False)
        ]
        self._statistics = [
            part.view(buffer.shape)
            for part, buffer in zip(parts[len(self._parameters) :], self._buffers, strict=False)
        ]
        self._scalars = parts[-1]
        of_gradients = sum(self._sizes[: len(self._parameters)])
        self._all_gradients, self._rest = self._flat[:of_gradients], self._flat[of_gradients:]
        self._short = (
            torch.empty_like(self._all_gradients, dtype=torch.bfloat16) if self._compress else None
        )

    def clear(self, begin: Begin | None = None) -> None:
        """Begin a step: zero the gradients, and remember the statistics that its forward pass changes.

        Args:
            begin: where given, gradients are summed by it, beginning while the backward pass runs. On
                all workers or on none.
        """
        self._begin, self._ends = begin, []
        self._missing = [len(bucket) for bucket in self._buckets]
        self._flat.zero_()
        torch._foreach_copy_(self._before, self._all_buffers)
        self._in_flight = True
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient  # something may have replaced it

    def roll_back(self) -> None:
        """Undo a step whose sum has not arrived, if there is one: its forward pass has changed statistics."""
        if self._in_flight:
            torch._foreach_copy_(self._all_buffers, self._before)
        if self._travelling:
            self._lay_out()  # what was begun in the group that is gone may still write to the old one
        self._begin, self._ends = None, []
        self._in_flight = self._travelling = False

    def discard(self) -> None:
        """Forget a step whose sum has arrived: statistics are again what they were before it."""
        torch._foreach_copy_(self._all_buffers, self._before)

    def finite(self) -> bool:
        """Whether every number of the step's sum is one, gradients included."""
        return bool(torch.isfinite(self._flat.sum()))

    def sum(self, weight: float, scalars: Sequence[float], total: Total) -> list[float]:
        """Exchange: gradients summed, statistics averaged by `weight`, scalars summed and returned.

        Args:
            weight: this worker's part of the step's samples; those of all workers add up to 1.
            scalars: as many numbers as were announced.
            total: sums over all workers.
        """
        self._scalars.copy_(torch.tensor(scalars, dtype=torch.float32))
        for statistic, buffer in zip(self._statistics, self._buffers, strict=True):
            torch.mul(buffer, weight, out=statistic)
        self._travelling = True
        if self._begin is not None:
            self._sum_the_rest(self._begin)
        elif self._short is None:
            total(self._flat)
        else:
            total(self._short.copy_(self._all_gradients))
            total(self._rest)  # counts and statistics stay exact
        if self._short is not None:
            self._all_gradients.copy_(self._short)
        self._in_flight = self._travelling = False
        for statistic, buffer in zip(self._statistics, self._buffers, strict=True):
            buffer.copy_(statistic)
        return [float(number) for number in self._scalars.tolist()]

    def _arrived(self, index: int, parameter: torch.Tensor) -> None:
        """A parameter's gradient is complete: begin what need not wait any longer."""
        del parameter
        if self._begin is None:
            return
        self._missing[self._bucket_of[index]] -= 1
        while len(self._ends) < len(self._buckets) and not self._missing[len(self._ends)]:
            self._begin_next(self._begin)

    def _begin_next(self, begin: Begin) -> None:
        bucket = self._buckets[len(self._ends)]
        first = sum(self._sizes[: bucket.start])
        part = slice(first, first + sum(self._sizes[bucket.start : bucket.stop]))
        gradients = self._flat[part]
        self._travelling = True
        self._ends.append(
            begin(gradients if self._short is None else self._short[part].copy_(gradients))
        )

    def _sum_the_rest(self, begin: Begin) -> None:
        """Begin what has not begun, and wait for all of it."""
        while len(self._ends) < len(self._buckets):
            self._begin_next(begin)
        self._ends.append(begin(self._rest))
        for end in self._ends:
            end()
        self._begin = None


def _buckets(sizes: Sequence[int], least: int) -> list[range]:
    """Neighbouring parameters by index, of at least so many bytes together, the last ones first."""
    found, stop, size = list[range](), len(sizes), 0
    for index in reversed(range(len(sizes))):
        size += sizes[index]
        if size >= least or index == 0:
            found.append(range(index, stop))
            stop, size = index, 0
    return found


def _dense_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """The parameter's own strides (channels-last ones too): a gradient laid out otherwise costs a copy."""
    return tuple(parameter.stride())


def sum_numbers(numbers: Sequence[float], device: torch.device, total: Total) -> list[float]:
    """The sums over all workers of a few numbers, exact for counts below 2^53."""
    together = torch.tensor(numbers, dtype=torch.float64, device=device)
    total(together)
    return [float(number) for number in together.tolist()]
