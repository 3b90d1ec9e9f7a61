"""The all-reduce of a training step: gradients, statistics and a few scalars.

All data are in one flat buffer: the gradients, then normalization statistics and a few scalars. So a
step costs one all-reduce, a worker without samples takes part like any other, and the question "does
a worker want to regroup?" is answered for all workers at the same step at no cost. Compressed gradients
have an all-reduce of their own, and overlapped ones have one for each bucket.

A worker's own gradients are unchanged until the sum has arrived: if the group breaks before, they are
kept, and the next group computes only the missing gradients. On a CPU that costs nothing: each gradient is
written to both buffers, the kept one and the send buffer, while it is in the cache, and autograd's own memory
for it is freed immediately. On a GPU, where each copy is a kernel, all gradients of a micro-batch are copied in
one call after its backward pass, unless their sums start during it.

If the network is slower than the backward pass, gradients need not wait for its end: they are split
into buckets, the last layers' first, and the sum of each starts as soon as it is complete. The order
is the same on all workers; a worker without samples starts all of them at the end.

Why not DistributedDataParallel: it averages over workers, which is wrong for uneven shares, and a
worker with an empty share would not take part.
"""

import functools
from collections.abc import Callable, Sequence

import torch

from everstep.elastic.transport.buffers import Buffers
from everstep.elastic.transport.group import PeerLostError
from everstep.elastic.transport.local_tensors import from_local, local_tensor
from everstep.elastic.transport.tensor_lists import copy_all
from everstep.errors import EverstepError

AllReduce = Callable[[torch.Tensor], None]
"""Function that sums a tensor over all workers, in place; see `RankAssignment.sum`."""

BeginAllReduce = Callable[[torch.Tensor], Callable[[], None]]
"""Function that starts such a sum; the returned function waits for the end."""

BUCKET_BYTES = 16 << 20  # minimum size of the gradients in one bucket, counted as float32


class GradientReducer:
    """Sums of a step over all workers.

    A step: `clear`, then for each micro-batch of this worker `begin_microbatch`, the backward pass and
    `add_microbatch`, then `sum`. After `roll_back`, continue with further micro-batches, or clear.

    Args:
        model: its parameters' gradients are summed, so each worker's loss must already be divided by
            the global batch; its floating-point buffers (running means and variances) become the
            average over samples, so that they are equal on all workers. A counter grows by the
            average of its increments, which is 1 if it counts batches. Other buffers (indices,
            masks, complex numbers) must not change.
        scalars: number of additional scalars to sum.
        compress: whether gradients are sent in bfloat16: half the bytes, with two to three decimal digits, for slow
            networks. Between processes of one machine it takes longer than it saves.
        bucket_bytes: minimum size of the gradients in one bucket, counted as float32.
        copy_late: whether the gradients of a micro-batch are copied in one call after its backward pass; if None,
            only on a GPU.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        scalars: int,
        *,
        compress: bool = False,
        bucket_bytes: int = BUCKET_BYTES,
        copy_late: bool | None = None,
    ) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        local_tensors = self._local_tensors = [
            local_tensor(parameter) for parameter in self._parameters
        ]
        self._buffers = Buffers(model)
        self._dtype = _sum_type(self._parameters)
        # In the type of the sums: in bfloat16 the rounding of the weighted parts would change even a constant buffer.
        self._averages = [
            torch.zeros_like(buffer, dtype=self._dtype) for buffer in self._buffers.averaged
        ]
        # Of buffers with more digits than the sums, the changes are averaged instead.
        self._wide_indices = [
            index
            for index, buffer in enumerate(self._buffers.averaged)
            if torch.finfo(buffer.dtype).eps < torch.finfo(self._dtype).eps
        ]
        self._sizes = [
            *(tensor.numel() for tensor in (*local_tensors, *self._buffers.averaged)),
            len(self._buffers.counters),
            scalars,
        ]
        self._compress = compress
        self._buckets = _buckets([tensor.numel() * 4 for tensor in local_tensors], bucket_bytes)
        self._bucket_numbers = {i: n for n, bucket in enumerate(self._buckets) for i in bucket}
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call] # torch's
                functools.partial(self._take, index)
            )
            for index, parameter in enumerate(self._parameters)
        ]
        gradient_count = sum(self._sizes[: len(self._parameters)])
        device = self._parameters[0].device
        self._copies_late = device.type == "cuda" if copy_late is None else copy_late
        self._own_gradients = torch.empty(gradient_count, dtype=self._dtype, device=device)
        self._own_views = self._views(self._own_gradients)
        self._increments = torch.zeros(
            len(self._buffers.counters), dtype=self._dtype, device=device
        )
        self._own_indices = set[int]()  # parameters with a gradient from this worker
        self._packed_indices = set[int]()  # parameters whose gradient is in the send buffer
        self._has_gradients = False
        self._is_single, self._is_last = False, True
        self._begin: BeginAllReduce | None = None
        # Error of a peer that was lost during the backward pass, which is completed first.
        self._lost_peer_error: PeerLostError | None = None
        self._missing_counts: list[int] = []
        self._waits: list[Callable[[], None]] = []
        self._in_flight = self._in_microbatch = self._sending = False
        self._allocate_send_buffers()

    def _allocate_send_buffers(self) -> None:
        """Allocate the send buffers and split them."""
        device = self._parameters[0].device
        self._flat = torch.zeros(sum(self._sizes), dtype=self._dtype, device=device)
        gradient_count = self._own_gradients.numel()
        self._all_gradients, self._statistics_flat = (
            self._flat[:gradient_count],
            self._flat[gradient_count:],
        )
        self._gradients = self._views(self._all_gradients)
        *statistics, self._summed_increments, self._scalars = torch.split(
            self._statistics_flat, self._sizes[len(self._parameters) :]
        )
        self._statistics = [
            part.view(buffer.shape)
            for part, buffer in zip(statistics, self._buffers.averaged, strict=True)
        ]
        self._sent_gradients, self._outgoing = self._all_gradients, self._gradients
        if self._compress:
            self._sent_gradients = torch.empty_like(self._all_gradients, dtype=torch.bfloat16)
            self._outgoing = self._views(self._sent_gradients)

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """Return a view for each parameter with its own layout: another layout would make copies slower."""
        return [
            values.as_strided(part.shape, part.stride(), values.storage_offset())
            for values, part in zip(
                torch.split(flat, self._sizes[: len(self._parameters)]),
                self._local_tensors,
                strict=True,
            )
        ]

    def clear(self) -> None:
        """Start a step, and save the statistics that its forward pass changes."""
        self._own_indices.clear()
        if self._averages:
            torch._foreach_zero_(self._averages)
        self._increments.zero_()
        self._buffers.save()
        self._in_flight, self._in_microbatch = True, False

    @property
    def has_gradients(self) -> bool:
        """True if a backward pass has reached a parameter in the current or last micro-batch."""
        return self._has_gradients

    @property
    def summed_bytes(self) -> int:
        """Number of bytes that a worker contributes to the sums of one step."""
        return self._sent_gradients.nbytes + self._statistics_flat.nbytes

    @property
    def sending(self) -> bool:
        """True if sums with other workers have started in this step."""
        return self._sending

    @property
    def _takes_all_at_end(self) -> bool:
        """True if the gradients of this micro-batch are copied after its backward pass."""
        return self._copies_late and self._begin is None

    def close(self) -> None:
        """Remove the hooks, so that later backward passes of the model are not affected."""
        for hook in self._hooks:
            hook.remove()

    def begin_microbatch(
        self, begin: BeginAllReduce | None = None, *, single: bool = False, last: bool = True
    ) -> None:
        """Start a micro-batch; its backward pass adds to the gradients of the earlier micro-batches.

        Args:
            begin: if given, starts sums while the backward pass runs, so this is the last micro-batch. All
                workers pass it, or none.
            single: whether this worker is the only one.
            last: whether no further micro-batch follows before the sum, unless the group breaks.
        """
        for parameter in self._parameters:
            parameter.grad = None
        self._begin, self._is_single, self._waits, self._lost_peer_error = begin, single, [], None
        self._is_last = last
        self._missing_counts = [len(bucket) for bucket in self._buckets]
        self._packed_indices.clear()
        self._has_gradients = False
        self._buffers.begin_pass()
        self._in_flight = self._in_microbatch = True

    def add_microbatch(self, weight: float) -> None:
        """Complete a micro-batch after its backward pass.

        Args:
            weight: its share of the step's samples; the weights of all workers' micro-batches add up to 1.

        Raises:
            EverstepError: the forward pass has changed a buffer that is neither a statistic nor a counter.
        """
        self._buffers.end_pass()
        if self._takes_all_at_end:
            self._take_all()
        if self._averages and weight:  # 0 times an infinite value of a mask would be NaN
            torch._foreach_add_(self._averages, self._averaged_parts(), alpha=weight)
        if self._buffers.counters:
            device = self._increments.device
            increments = torch._foreach_sub(self._buffers.counters, self._buffers.saved_counters)
            self._increments.add_(
                torch.cat([part.flatten().to(device) for part in increments]), alpha=weight
            )
        self._buffers.restore()
        self._in_microbatch = False

    def _averaged_parts(self) -> list[torch.Tensor]:
        """Return what is averaged of each buffer: its values, or the changes of one with more digits than the sums."""
        parts = list(self._buffers.averaged)
        for index in self._wide_indices:
            saved, current = self._buffers.saved_averaged[index], parts[index]
            # From an infinite value there is no finite change: the value itself is averaged.
            parts[index] = (current - _finite_or_zero(saved)).to(self._dtype)
        return parts

    def roll_back(self) -> bool:
        """Restore the statistics from before an unfinished step; return True if its gradients are valid.

        They are valid if all micro-batches were completed; an unfinished micro-batch has corrupted them.
        """
        gradients_valid = self._in_flight and not self._in_microbatch
        if self._in_flight:
            self._buffers.restore()
        if self._sending:
            # An operation of the old group may still write to the old buffers.
            self._allocate_send_buffers()
        self._begin, self._waits = None, []
        self._in_flight = self._in_microbatch = self._sending = False
        return gradients_valid

    def discard(self) -> None:
        """Discard a step whose sum has arrived: restore the statistics from before it."""
        self._buffers.restore()

    def is_finite(self) -> bool:
        """Return True if the total of all received gradients is finite."""
        summed = self._own_gradients if self._is_single else self._all_gradients
        return bool(torch.isfinite(summed.sum()))

    def sum(self, scalars: Sequence[float], all_reduce: AllReduce) -> list[float]:
        """Sum over all workers: set the gradients, average the statistics, return the summed scalars.

        Args:
            scalars: this worker's numbers, as many as the constructor's `scalars`.
            all_reduce: function that sums over all workers.

        Raises:
            PeerLostError: the sum did not arrive; this worker's gradients are kept.
        """
        if self._lost_peer_error:
            raise self._lost_peer_error
        self._scalars.copy_(torch.tensor(scalars, dtype=self._dtype))
        copy_all(self._statistics, self._averages)
        self._summed_increments.copy_(self._increments)
        self._sending = True
        if self._begin is not None:
            self._sum_remaining(self._begin)
        elif not self._is_single:
            self._sum_after_backward(all_reduce)
        self._in_flight = self._sending = False
        self._set_gradients()
        copy_all(self._buffers.averaged, self._statistics)
        for index in self._wide_indices:
            saved, change = self._buffers.saved_averaged[index], self._statistics[index]
            self._buffers.averaged[index].copy_(_finite_or_zero(saved) + change)
        if counters := self._buffers.counters:  # one batch per step, regardless of its division
            torch._foreach_add_(
                counters, [round(increment) for increment in self._summed_increments.tolist()]
            )
        return [float(number) for number in self._scalars.tolist()]

    def _sum_after_backward(self, all_reduce: AllReduce) -> None:
        self._pack(range(len(self._parameters)))
        if self._compress:
            all_reduce(self._sent_gradients)
            all_reduce(self._statistics_flat)  # counts and statistics stay exact
        else:
            all_reduce(self._flat)

    def _set_gradients(self) -> None:
        """Set the parameters' gradients to the received sums."""
        if self._is_single:
            for index, own_gradient in enumerate(self._own_views):
                if index not in self._own_indices:
                    own_gradient.zero_()
        elif self._compress:
            self._all_gradients.copy_(self._sent_gradients)
        summed = self._own_views if self._is_single else self._gradients
        for parameter, gradient in zip(self._parameters, summed, strict=True):
            parameter.grad = from_local(gradient.to(parameter.dtype), parameter)

    def _take(self, index: int, parameter: torch.Tensor) -> None:
        """Add a parameter's gradient of this micro-batch, and start the sums that are ready."""
        if self._in_microbatch and self._takes_all_at_end:
            return  # `add_microbatch` adds all gradients
        gradient, parameter.grad = parameter.grad, None
        if not self._in_microbatch or gradient is None:
            return  # a backward pass outside a step
        self._has_gradients = True
        gradient = dense_local_tensor(gradient)
        if index in self._own_indices:
            self._own_views[index].add_(gradient)
        else:
            self._own_views[index].copy_(gradient)
            self._own_indices.add(index)
        if self._is_single or not self._is_last:
            return
        if index in self._packed_indices:
            self._repack(index)
            return
        self._pack([index])
        self._missing_counts[self._bucket_numbers[index]] -= 1
        try:
            while self._begin and not self._lost_peer_error and self._next_is_complete():
                self._begin_next(self._begin)
        except PeerLostError as error:
            self._lost_peer_error = error

    def _take_all(self) -> None:
        """Add all gradients of this micro-batch."""
        gradients = {
            index: dense_local_tensor(parameter.grad)
            for index, parameter in enumerate(self._parameters)
            if parameter.grad is not None
        }
        self._has_gradients = bool(gradients)
        first = gradients.keys() - self._own_indices
        copy_all([self._own_views[i] for i in first], [gradients[i] for i in first])
        later = gradients.keys() & self._own_indices  # with gradients of earlier micro-batches
        if later:
            torch._foreach_add_([self._own_views[i] for i in later], [gradients[i] for i in later])
        self._own_indices |= first
        for parameter in self._parameters:
            parameter.grad = None

    def _pack(self, indices: Sequence[int]) -> None:
        """Copy gradients to the send buffer, or zero where there is none, unless they are there already."""
        missing = [index for index in indices if index not in self._packed_indices]
        own = [index for index in missing if index in self._own_indices]
        copy_all([self._outgoing[i] for i in own], [self._own_views[i] for i in own])
        for index in missing:
            if index not in self._own_indices:
                self._outgoing[index].zero_()
        self._packed_indices.update(missing)

    def _repack(self, index: int) -> None:
        """Add a further backward pass of the same micro-batch to a gradient that was packed.

        Raises:
            EverstepError: its sum over all workers has started already.
        """
        if self._bucket_numbers[index] < len(self._waits):
            raise EverstepError(
                "a second backward pass of one micro-batch cannot be summed while the first one's "
                "gradients are being sent",
                "Add the losses before one backward pass, or pass overlap='off'.",
            )
        self._outgoing[index].copy_(self._own_views[index])

    def _next_is_complete(self) -> bool:
        return len(self._waits) < len(self._buckets) and not self._missing_counts[len(self._waits)]

    def _begin_next(self, begin: BeginAllReduce) -> None:
        bucket = self._buckets[len(self._waits)]
        self._sending = True
        self._pack(bucket)
        first = sum(self._sizes[: bucket.start])
        size = sum(self._sizes[bucket.start : bucket.stop])
        self._waits.append(begin(self._sent_gradients[first : first + size]))

    def _sum_remaining(self, begin: BeginAllReduce) -> None:
        """Start the remaining sums, and wait for all."""
        while len(self._waits) < len(self._buckets):
            self._begin_next(begin)
        self._waits.append(begin(self._statistics_flat))
        for wait in self._waits:
            wait()
        self._begin = None


def _finite_or_zero(values: torch.Tensor) -> torch.Tensor:
    return torch.where(values.isfinite(), values, 0.0)


def _sum_type(parameters: Sequence[torch.Tensor]) -> torch.dtype:
    """Return the type of the sums: at least float32, so that small gradients are not lost."""
    has_double = any(parameter.dtype == torch.float64 for parameter in parameters)
    return torch.float64 if has_double else torch.float32


def dense_local_tensor(gradient: torch.Tensor) -> torch.Tensor:
    """Return the local tensor of a gradient, dense."""
    part = local_tensor(gradient)
    return part.to_dense() if part.is_sparse else part


def _buckets(sizes: Sequence[int], min_bytes: int) -> list[range]:
    """Return ranges of adjacent parameters, the last parameters first; only the last range may have fewer bytes."""
    buckets, stop, size = list[range](), len(sizes), 0
    for index in reversed(range(len(sizes))):
        size += sizes[index]
        if size >= min_bytes or index == 0:
            buckets.append(range(index, stop))
            stop, size = index, 0
    return buckets


def sum_scalars(
    numbers: Sequence[float], device: torch.device, all_reduce: AllReduce
) -> list[float]:
    """Return the sums over all workers of a few numbers, exact for counts below 2^53."""
    total = torch.tensor(numbers, dtype=torch.float64, device=device)
    all_reduce(total)
    return [float(number) for number in total.tolist()]
