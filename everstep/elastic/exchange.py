"""The one exchange of a training step: gradients, statistics, and numbers that ride along.

All gradients live in one flat buffer (each parameter's `.grad` is a view of it), with room at its
end for normalisation statistics and a few scalars. So a step costs one all-reduce, a worker without
samples takes part like any other, and the question "does anybody want to regroup?" is answered for
all workers at the same step at no cost.

Why not DistributedDataParallel: it averages over workers, which is wrong for uneven shares, and a
worker whose share is empty would not take part in its exchange.
"""

from collections.abc import Callable, Sequence

import torch

Total = Callable[[torch.Tensor], None]
"""Sums a tensor over all workers, in place; `Seat.sum`."""


class StepExchange:
    """Sums of a step over all workers.

    Args:
        model: its parameters' gradients are summed, so each worker's loss must already be divided
            by the
            global batch; its floating-point buffers (running means and variances) become the
            average over samples, so that all workers keep the same.
        scalars: how many numbers ride along.
        compress: whether gradients travel in bfloat16: half the bytes and three digits, for slow
            networks. Among processes of one machine it takes longer than it saves.
    """

    def __init__(self, model: torch.nn.Module, scalars: int, *, compress: bool = False) -> None:
        self._parameters = [
            parameter for parameter in model.parameters() if parameter.requires_grad
        ]
        self._buffers = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        sizes = [tensor.numel() for tensor in (*self._parameters, *self._buffers)]
        device = self._parameters[0].device
        self._flat = torch.zeros(sum(sizes) + scalars, dtype=torch.float32, device=device)
        parts = torch.split(self._flat, [*sizes, scalars])
        self._gradients = [
            part.as_strided(parameter.shape, _dense_strides(parameter))
            for part, parameter in zip(parts, self._parameters, strict=False)
        ]
        self._statistics = [
            part.view(buffer.shape)
            for part, buffer in zip(parts[len(self._parameters) :], self._buffers, strict=False)
        ]
        self._scalars = parts[-1]
        of_gradients = sum(sizes[: len(self._parameters)])
        self._all_gradients, self._rest = self._flat[:of_gradients], self._flat[of_gradients:]
        self._short = (
            torch.empty_like(self._all_gradients, dtype=torch.bfloat16) if compress else None
        )
        self._all_buffers = list(model.buffers())
        self._before = [buffer.clone() for buffer in self._all_buffers]
        self._in_flight = False

    def clear(self) -> None:
        """Begin a step: zero the gradients, and remember the statistics that its forward pass changes."""
        self._flat.zero_()
        torch._foreach_copy_(self._before, self._all_buffers)
        self._in_flight = True
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient  # something may have replaced it

    def roll_back(self) -> None:
        """Undo a step whose sum has not arrived, if there is one: its forward pass has changed statistics."""
        if self._in_flight:
            torch._foreach_copy_(self._all_buffers, self._before)
        self._in_flight = False

    def discard(self) -> None:
        """Forget a step whose sum has arrived: statistics are again what they were before it."""
        torch._foreach_copy_(self._all_buffers, self._before)

    def finite(self) -> bool:
        """Whether every number of the step's sum is one, gradients included."""
        return bool(torch.isfinite(self._flat.sum()))

    def sum(self, weight: float, scalars: Sequence[float], total: Total) -> list[float]:
        """Exchange: gradients summed, statistics averaged by `weight`, scalars summed and returned.

        Args:
            weight: this worker's part of the step's samples; the weights of all workers add up to
                1.
            scalars: as many numbers as were announced.
            total: sums over all workers.
        """
        self._scalars.copy_(torch.tensor(scalars, dtype=torch.float32))
        for statistic, buffer in zip(self._statistics, self._buffers, strict=True):
            torch.mul(buffer, weight, out=statistic)
        if self._short is None:
            total(self._flat)
        else:
            total(self._short.copy_(self._all_gradients))
            total(self._rest)  # counts and statistics stay exact
            self._all_gradients.copy_(self._short)
        self._in_flight = False
        for statistic, buffer in zip(self._statistics, self._buffers, strict=True):
            buffer.copy_(statistic)
        return [float(number) for number in self._scalars.tolist()]


def _dense_strides(parameter: torch.Tensor) -> tuple[int, ...]:
    """The parameter's own strides (channels-last ones too): a gradient laid out otherwise costs a copy."""
    return tuple(parameter.stride())


def sum_numbers(numbers: Sequence[float], device: torch.device, total: Total) -> list[float]:
    """The sums over all workers of a few numbers, exact for counts below 2^53."""
    together = torch.tensor(numbers, dtype=torch.float64, device=device)
    total(together)
    return [float(number) for number in together.tolist()]
