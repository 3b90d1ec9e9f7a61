"""The one exchange of a training step: gradients, statistics, and numbers that ride along.

What travels lies in one flat buffer: all gradients, with room at its end for normalisation
statistics and a few scalars. So a step costs one all-reduce, a worker without samples takes part
like any other, and the question "does anybody want to regroup?" is answered for all workers at the
same step at no cost.

A worker's own gradients stay what they are until the sum has arrived: where the group breaks before,
they are kept, and the next group computes only what is missing. That costs nothing: each gradient is
written to both places while it is in the processor's cache, and autograd's own memory for it is free
again at once.

Where the network is slower than the backward pass, gradients need not wait for its end: they are cut
into buckets, the last layers' first, and the sum of each begins as soon as it is complete. The order
is the same on all workers; one without samples begins them all at the end.

Why not DistributedDataParallel: it averages over workers, which is wrong for uneven shares, and a
worker whose share is empty would not take part in its exchange.
"""

import functools
from collections.abc import Callable, Sequence

import torch

from everstep.elastic.group import PeerLostError

Total = Callable[[torch.Tensor], None]
"""Sums a tensor over all workers, in place; `Seat.sum`."""

Begin = Callable[[torch.Tensor], Callable[[], None]]
"""Begins to sum a tensor over all workers, in place; the answer waits for the end; `Seat.begin_sum`."""

BUCKET_BYTES = 16 << 20  # of gradients whose sum begins together


class StepExchange:
    """Sums of a step over all workers.

    A step: `clear`, then for each part that this worker computes `begin_part`, the backward pass and
    `add_part`, then `sum`. After `roll_back`, go on with further parts, or clear.

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
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._all_buffers = list(model.buffers())
        self._buffers = [buffer for buffer in self._all_buffers if buffer.is_floating_point()]
        self._counters = [buffer for buffer in self._all_buffers if not buffer.is_floating_point()]
        self._before = [buffer.clone() for buffer in self._all_buffers]
        self._averages = [torch.zeros_like(buffer) for buffer in self._buffers]
        self._sizes = [
            *(tensor.numel() for tensor in (*self._parameters, *self._buffers)),
            scalars,
        ]
        self._compress = compress
        self._buckets = _buckets([p.numel() * 4 for p in self._parameters], bucket_bytes)
        self._bucket_of = {i: n for n, bucket in enumerate(self._buckets) for i in bucket}
        for index, parameter in enumerate(self._parameters):
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call] # torch's
                functools.partial(self._take, index)
            )
        of_gradients = sum(self._sizes[: len(self._parameters)])
        device = self._parameters[0].device
        self._own_gradients = torch.empty(of_gradients, dtype=torch.float32, device=device)
        self._own = self._views(self._own_gradients)
        self._have = set[int]()  # parameters that have a gradient of their own
        self._packed = set[int]()  # those whose gradient is where it travels
        self._alone = False
        self._begin: Begin | None = None
        self._broken: PeerLostError | None = None  # in the backward pass, which is finished first
        self._missing: list[int] = []
        self._ends: list[Callable[[], None]] = []
        self._in_flight = self._in_part = self._travelling = False
        self._lay_out()

    def _lay_out(self) -> None:
        """Take memory for what travels, and cut it up."""
        device = self._parameters[0].device
        self._flat = torch.zeros(sum(self._sizes), dtype=torch.float32, device=device)
        of_gradients = self._own_gradients.numel()
        self._all_gradients, self._rest = self._flat[:of_gradients], self._flat[of_gradients:]
        self._gradients = self._views(self._all_gradients)
        *statistics, self._scalars = torch.split(self._rest, self._sizes[len(self._parameters) :])
        self._statistics = [
            part.view(buffer.shape) for part, buffer in zip(statistics, self._buffers, strict=True)
        ]
        self._travels, self._outgoing = self._all_gradients, self._gradients
        if self._compress:
            self._travels = torch.empty_like(self._all_gradients, dtype=torch.bfloat16)
            self._outgoing = self._views(self._travels)

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """For each parameter its piece, laid out as the parameter is: otherwise each copy would cost more."""
        return [
            part.as_strided(parameter.shape, parameter.stride(), part.storage_offset())
            for part, parameter in zip(
                torch.split(flat, self._sizes[: len(self._parameters)]),
                self._parameters,
                strict=True,
            )
        ]

    def clear(self) -> None:
        """Begin a step, and remember the statistics that its forward pass changes."""
        self._have.clear()
        for average in self._averages:
            average.zero_()
        _copy(self._before, self._all_buffers)
        self._in_flight, self._in_part = True, False

    def begin_part(self, begin: Begin | None = None, *, alone: bool = False) -> None:
        """Begin a part of the step; its backward pass adds to the gradients of those before.

        Args:
            begin: where given, gradients are summed by it, beginning while the backward pass runs, so
                this is the last part. On all workers or on none.
            alone: whether there is nobody to sum with.
        """
        for parameter in self._parameters:
            parameter.grad = None
        self._begin, self._alone, self._ends, self._broken = begin, alone, [], None
        self._missing = [len(bucket) for bucket in self._buckets]
        self._packed.clear()
        self._in_flight = self._in_part = True

    def add_part(self, weight: float) -> None:
        """A part's backward pass is complete.

        Args:
            weight: its share of the step's samples; those of all parts of all workers add up to 1.
        """
        for average, buffer in zip(self._averages, self._buffers, strict=True):
            average.add_(buffer, alpha=weight)
        _copy(self._all_buffers, self._before)
        self._in_part = False

    def roll_back(self) -> bool:
        """Put statistics back to what they were before a step whose sum has not arrived, if there is one.

        Whether the parts that were added are still there: a part that was left half-way has spoiled
        them.
        """
        kept = self._in_flight and not self._in_part
        if self._in_flight:
            _copy(self._all_buffers, self._before)
        if self._travelling:
            self._lay_out()  # what was begun in the group that is gone may still write to the old one
        self._begin, self._ends = None, []
        self._in_flight = self._in_part = self._travelling = False
        return kept

    def discard(self) -> None:
        """Forget a step whose sum has arrived: statistics are again what they were before it."""
        _copy(self._all_buffers, self._before)

    def finite(self) -> bool:
        """Whether every number of the step's sum is one, gradients included."""
        total = self._own_gradients if self._alone else self._flat
        return bool(torch.isfinite(total.sum()))

    def sum(self, scalars: Sequence[float], total: Total) -> list[float]:
        """Exchange: gradients summed, statistics averaged, scalars summed and returned.

        Args:
            scalars: as many numbers as were announced.
            total: sums over all workers.

        Raises:
            PeerLostError: it did not arrive; what this worker has added is still there.
        """
        if self._broken:
            raise self._broken
        self._scalars.copy_(torch.tensor(scalars, dtype=torch.float32))
        _copy(self._statistics, self._averages)
        self._travelling = True
        if self._begin is not None:
            self._sum_the_rest(self._begin)
        elif not self._alone:
            self._sum_at_once(total)
        self._in_flight = self._travelling = False
        self._give()
        _copy(self._buffers, self._statistics)
        for counter in self._counters:  # of batches: one for each step, however it was divided
            counter.add_(1)
        return [float(number) for number in self._scalars.tolist()]

    def _sum_at_once(self, total: Total) -> None:
        for index in range(len(self._parameters)):
            self._pack(index)
        if self._compress:
            total(self._travels)
            total(self._rest)  # counts and statistics stay exact
        else:
            total(self._flat)

    def _give(self) -> None:
        """Let the optimizer have what has arrived."""
        if self._alone:
            for index, own in enumerate(self._own):
                if index not in self._have:
                    own.zero_()
        elif self._compress:
            self._all_gradients.copy_(self._travels)
        given = self._own if self._alone else self._gradients
        for parameter, gradient in zip(self._parameters, given, strict=True):
            parameter.grad = gradient

    def _take(self, index: int, parameter: torch.Tensor) -> None:
        """A part's gradient of a parameter is complete: add it, and begin what need not wait any longer."""
        gradient, parameter.grad = parameter.grad, None
        if not self._in_part or gradient is None:
            return  # a backward pass that is no step's
        if index in self._have:
            self._own[index].add_(gradient)
        else:
            self._own[index].copy_(gradient)
            self._have.add(index)
        if self._alone:
            return
        self._pack(index)
        self._missing[self._bucket_of[index]] -= 1
        try:
            while self._begin and not self._broken and self._next_is_complete():
                self._begin_next(self._begin)
        except PeerLostError as error:
            self._broken = error

    def _pack(self, index: int) -> None:
        """Copy a gradient to where it travels; none is zero."""
        if index in self._packed:
            return
        self._packed.add(index)
        if index in self._have:
            self._outgoing[index].copy_(self._own[index])
        else:
            self._outgoing[index].zero_()

    def _next_is_complete(self) -> bool:
        return len(self._ends) < len(self._buckets) and not self._missing[len(self._ends)]

    def _begin_next(self, begin: Begin) -> None:
        bucket = self._buckets[len(self._ends)]
        self._travelling = True
        for index in bucket:
            self._pack(index)
        first = sum(self._sizes[: bucket.start])
        size = sum(self._sizes[bucket.start : bucket.stop])
        self._ends.append(begin(self._travels[first : first + size]))

    def _sum_the_rest(self, begin: Begin) -> None:
        """Begin what has not begun, and wait for all of it."""
        while len(self._ends) < len(self._buckets):
            self._begin_next(begin)
        self._ends.append(begin(self._rest))
        for end in self._ends:
            end()
        self._begin = None


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)


def _buckets(sizes: Sequence[int], least: int) -> list[range]:
    """Neighbouring parameters by index, of at least so many bytes together, the last ones first."""
    found, stop, size = list[range](), len(sizes), 0
    for index in reversed(range(len(sizes))):
        size += sizes[index]
        if size >= least or index == 0:
            found.append(range(index, stop))
            stop, size = index, 0
    return found


def sum_numbers(numbers: Sequence[float], device: torch.device, total: Total) -> list[float]:
    """The sums over all workers of a few numbers, exact for counts below 2^53."""
    together = torch.tensor(numbers, dtype=torch.float64, device=device)
    total(together)
    return [float(number) for number in together.tolist()]
