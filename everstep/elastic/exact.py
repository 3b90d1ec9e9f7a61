"""The exchange of `exact` mode: the same bits for any number of workers and any history of the group.

Floating-point sums depend on their order, and with the number of workers the order changes. So a
global batch is cut into shards of a fixed size, whatever the number of workers; each shard's
gradient is rounded to whole multiples of a unit, and whole numbers are summed, whose sum has no
order. Batch statistics likewise: each shard normalises by its own, and the running ones become the
average over shards. What is left to be equal is the arithmetic of one shard: the same kernels on the
same kind of processor, with the same number of threads.

Gradients are summed as 32-bit integers: no more bytes than floating point has. Each parameter has a
unit of its own, a power of two, which follows its gradients: the next step's sums may be 64 times
the last one's largest, and are kept 2^25 times finer than that. Where a shard does not fit all the
same, all workers learn it before gradients travel, take a coarser unit, and compute the step again.
Units follow from sums alone, so that they are the same for any number of workers; a joiner and a
checkpoint have them as a part of the state.

Why not round the sum of a worker's shards once: which shards a worker has depends on how many
workers there are.
"""

from collections.abc import Iterator, Sequence

import torch

from everstep.elastic.exchange import Total
from everstep.elastic.sampler import Ids

BITS = 31  # of a sum's magnitude
HEADROOM = 6  # bits by which a step's sums may outgrow the last one's before it is computed again
LEAST_RANGE = -2  # finer units than 2^-33 gain nothing: a tensor may also wake from a zero gradient
FIRST_RANGE = 6
MOST_RANGE = 20  # of a mean loss's gradient: beyond a million, training has diverged
# Times the samples of a global batch: thousands, of values up to a thousand.
STATISTIC_SCALE = 2.0**30
CHUNK = 2**18  # numbers rounded at a time: they stay in the processor's cache


def cut(ids: Ids, shard_size: int) -> list[Ids]:
    """A global batch as shards, which depend on nothing but the batch; the last may be smaller."""
    return [ids[first : first + shard_size] for first in range(0, len(ids), shard_size)]


class ExactExchange:
    """Sums of a step over all shards of all workers, in whole numbers.

    A step: `clear`, then `add_shard` after the backward pass of each shard, then `sum`. After
    `roll_back`, go on with further shards, or clear.

    Args:
        model: its parameters' gradients are summed, so each shard's loss must already be divided by
            the global batch.
        scalars: how many whole numbers ride along, each sum below 2^53.
        shards: of a whole global batch; together they may fill a sum.

    Attributes:
        ranges: for each parameter the power of two below which its sums must stay, int32; a part of
            the training state.
    """

    def __init__(self, model: torch.nn.Module, scalars: int, shards: int) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = list(model.buffers())
        self._before = [buffer.clone() for buffer in self._buffers]
        device = self._parameters[0].device
        self._sizes = [parameter.numel() for parameter in self._parameters]
        self._own = torch.zeros(sum(self._sizes), dtype=torch.int32, device=device)
        # Sums of whole numbers are exact in float64, too, and there are few of these.
        sizes = [buffer.numel() for buffer in self._buffers]
        sizes += [len(self._parameters), scalars]
        self._own_rest = torch.zeros(sum(sizes), dtype=torch.float64, device=device)
        *statistics, self._misfits, self._scalars = torch.split(self._own_rest, sizes)
        self._statistics = self._shaped(statistics)
        self._rest_sizes = sizes
        self._lay_out()
        self._chunk = CHUNK if device.type == "cpu" else 2**24
        self._scratch = torch.empty(self._chunk, dtype=torch.float32, device=device)
        self._rounded = torch.empty(self._chunk, dtype=torch.int32, device=device)
        self._shards = shards
        self._empty = True
        self._in_flight = self._travelling = False
        self.ranges = torch.empty(len(self._parameters), dtype=torch.int32, device=device)
        self.forget()

    def _lay_out(self) -> None:
        """Take memory for what travels; this worker's own sums stay what they are until all have arrived."""
        self._total = torch.empty_like(self._own)
        self._rest = torch.empty_like(self._own_rest)

    def _shaped(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [part.view(buf.shape) for part, buf in zip(parts, self._buffers, strict=True)]

    def forget(self) -> None:
        """Begin a run: nothing is known of its gradients."""
        self.ranges.fill_(FIRST_RANGE)

    def clear(self) -> None:
        """Begin a step, or one anew."""
        self._empty = True
        self._own_rest.zero_()
        _copy(self._before, self._buffers)
        self.begin_shard()

    def begin_shard(self) -> None:
        """Begin a shard; one that was left half-way is forgotten."""
        self._in_flight = True
        for parameter in self._parameters:
            parameter.grad = None

    def roll_back(self) -> bool:
        """Put statistics back to what they were before a step whose sum has not arrived, if there is one.

        Whether there is one: the shards that were added stay.
        """
        kept = self._in_flight
        if kept:
            _copy(self._buffers, self._before)
        if self._travelling:
            self._lay_out()  # what was begun in the group that is gone may still write to the old one
        self._in_flight = self._travelling = False
        return kept

    def discard(self) -> None:
        """Forget a step whose sum has arrived: statistics are again what they were before it."""
        _copy(self._buffers, self._before)

    @torch.no_grad()
    def add_shard(self, samples: int) -> bool:
        """Take one shard's gradients and statistics, and make room for the next shard.

        False where a gradient is no number, or too large for any unit: the step's sum is then of no
        use, and the caller has to tell the others.
        """
        largest = []
        for parameter, total, power in zip(
            self._parameters, torch.split(self._own, self._sizes), self.ranges.tolist(), strict=True
        ):
            if parameter.grad is not None:
                largest.append(self._add(parameter.grad, total, 2.0 ** (BITS - power)))
                parameter.grad = None
            else:
                largest.append(parameter.new_zeros(()))
                if self._empty:
                    total.zero_()
        self._empty = False
        for buffer, before, total in zip(
            self._buffers, self._before, self._statistics, strict=True
        ):
            if buffer.is_floating_point():
                total.add_((buffer.double() * STATISTIC_SCALE).round_() * samples)
            else:  # a counter of batches
                total.add_(buffer - before)
        _copy(self._buffers, self._before)
        return self._fit(torch.stack(largest).double())

    @torch.no_grad()
    def sum(self, samples: int, scalars: Sequence[int], total: Total) -> list[int] | None:
        """Exchange: gradients become the parameters' own, statistics are averaged, scalars returned.

        None where some shard did not fit: units are coarser now, and the step has to be computed
        again.

        Args:
            samples: of the whole global batch.
            scalars: this worker's whole numbers, as many as were announced.
            total: sums over all workers.
        """
        self._scalars.copy_(torch.tensor(scalars, dtype=torch.float64))
        if self._empty:
            self._own.zero_()
        self._travelling = True
        total(self._rest.copy_(self._own_rest))
        *statistics, misfits, numbers = torch.split(self._rest, self._rest_sizes)
        if (misfits > 0).any():
            self.ranges.add_(HEADROOM * (misfits > 0)).clamp_(max=MOST_RANGE)
            self._travelling = False
            return None
        total(self._total.copy_(self._own))
        self._in_flight = self._travelling = False
        for parameter, summed, power in zip(
            self._parameters, self._sums(), self.ranges.tolist(), strict=True
        ):
            parameter.grad = torch.empty_like(parameter)
            for part, whole in self._chunks(parameter.grad, summed):
                part.copy_(whole).mul_(2.0 ** (power - BITS))
        for buffer, summed in zip(self._buffers, self._shaped(statistics), strict=True):
            if buffer.is_floating_point():
                buffer.copy_(summed / (STATISTIC_SCALE * samples))
            else:
                buffer.add_(summed.to(buffer.dtype))
        return [int(number) for number in numbers.tolist()]

    def _sums(self) -> Sequence[torch.Tensor]:
        """What has arrived, by parameter."""
        return torch.split(self._total, self._sizes)

    def follow(self) -> None:
        """Choose the next step's units by the sums that have arrived; only if they were numbers."""
        bounds = torch.stack([torch.stack(torch.aminmax(summed)) for summed in self._sums()])
        chosen = []
        for (least, most), power in zip(bounds.tolist(), self.ranges.tolist(), strict=True):
            grown = max(-least, most).bit_length() - BITS + power + HEADROOM
            chosen.append(max(LEAST_RANGE, min(grown, MOST_RANGE)))
        self.ranges.copy_(torch.tensor(chosen))

    def _add(self, gradient: torch.Tensor, total: torch.Tensor, scale: float) -> torch.Tensor:
        """Add it, rounded to whole multiples of 1/scale, or begin with it; the largest magnitude in it.

        Scaling by a power of two is itself exact. What does not fit becomes some other number: the
        sum is not used then.
        """
        bounds = list[torch.Tensor]()
        for part, whole in self._chunks(gradient, total):
            bounds += torch.aminmax(part)
            scaled = torch.mul(part, scale, out=self._scratch[: len(part)]).round_()
            if self._empty:
                whole.copy_(scaled)
            else:
                whole.add_(self._rounded[: len(part)].copy_(scaled))
        return torch.stack(bounds).abs().max()

    def _fit(self, largest: torch.Tensor) -> bool:
        """Note the parameters whose gradient is too large for its unit; whether a wider range exists."""
        share = (
            0.5 / self._shards
        )  # of a range that one shard may fill; half, for what rounding adds
        if not bool((largest < 2.0**MOST_RANGE * share).all()):  # also where one is no number
            return False
        self._misfits += (largest >= torch.exp2(self.ranges.double()) * share).to(self._misfits)
        return True

    def _chunks(
        self, tensor: torch.Tensor, total: torch.Tensor
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Both in pieces, in the order of the tensor's memory: autograd lays gradients out as parameters."""
        flat = tensor.as_strided((tensor.numel(),), (1,))
        return zip(torch.split(flat, self._chunk), torch.split(total, self._chunk), strict=True)


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)
