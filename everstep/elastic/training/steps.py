"""One step up to its sum: this worker's micro-batches, and the all-reduce.

`LiveSteps` sums in floating point; its unit is a sample. `ExactSteps` sums integers; its unit is a shard.
A worker computes a share of the units that the group has not computed yet: if the last group broke in this
step, the survivors' gradients are kept.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from everstep.elastic.accounting.time_account import Activity
from everstep.elastic.data_order.leftover import Span, merge_spans, remaining_spans, split_share
from everstep.elastic.data_order.sample_ledger import LIMBS, from_limbs, to_limbs
from everstep.elastic.data_order.sampler import Ids
from everstep.elastic.training.in_flight import InFlight
from everstep.elastic.training.microbatches import Microbatch, MicrobatchLimit, split_spans
from everstep.elastic.training.options import RunOptions
from everstep.elastic.training.training_state import RunState
from everstep.elastic.training.worker import Worker
from everstep.elastic.transport.exact_reducer import ExactReducer, split_into_shards
from everstep.elastic.transport.reducer import GradientReducer

SCALARS = 7 + LIMBS  # number of scalars that are summed with the gradients
LOSS_SCALE = 2**32
MIN_REDIVIDED_SAMPLES = 16
"""Minimum number of samples of a worker when the rest of a broken step is divided again.

Batch normalization computes its statistics for each micro-batch; a tiny one would distort them.
"""


@dataclass(frozen=True)
class Sums:
    """The sums of a step besides its gradients, over all workers.

    Attributes:
        loss: mean loss over the global batch; NaN or infinite if it was not finite somewhere. In `exact`, NaN if a
            shard has a non-finite loss or an unusable gradient.
        finite: whether the loss and, if they are checked, all summed gradients are finite.
        votes: number of workers that want to regroup after the step.
        leavers: number of workers whose nodes leave.
        hung: 1 if the worker that writes the checkpoints reports that its storage hangs.
        stops: number of workers whose program ends the run with this step.
        samples: number of samples that were actually read.
        digest: digest of these samples, for the ledger.
    """

    loss: float
    finite: bool
    votes: int
    leavers: int
    hung: int
    stops: int
    samples: int
    digest: int


class Steps(Protocol):
    """The computation of steps in one mode."""

    def plan(self, ids: Ids) -> list[Microbatch]:
        """Start the next step with these samples of the global batch; return this worker's micro-batches."""

    def share(self, step: int, ids: Ids) -> Ids:
        """Return this worker's samples of the next step, or of a later one."""

    def begin(self, microbatch: Microbatch) -> None:
        """Start a micro-batch, before its forward pass."""

    def end(self, microbatch: Microbatch, loss: torch.Tensor | None) -> bool:
        """Complete a micro-batch after its backward pass; return False if no gradient was computed.

        Args:
            microbatch: the micro-batch.
            loss: its share of the mean loss over the global batch, one number; None if `Batch.backward` was not used.
        """

    def sum(self, *, has_loss: bool) -> Sums | None:
        """Sum over all workers; return None if the step must be computed again.

        Args:
            has_loss: whether the loop passes its losses to `Batch.backward`.
        """


class LiveSteps:
    """Steps in mode `live`: sums in floating point."""

    def __init__(
        self,
        options: RunOptions,
        state: RunState,
        worker: Worker,
        reducer: GradientReducer,
        limit: MicrobatchLimit,
        *,
        scaled: bool,
    ) -> None:
        self._options, self._state, self._worker = options, state, worker
        self._reducer, self._limit = reducer, limit
        # A finite loss hardly ever has a non-finite gradient, unless the loss is scaled.
        self._checks_gradients = scaled or options.nonfinite_loss == "skip"
        self._has_begun = False
        self._samples = 0

    def plan(self, ids: Ids) -> list[Microbatch]:
        """Start the next step."""
        state = self._state
        if not state.in_flight.own_spans:
            self._reducer.clear()
        self._has_begun, self._samples = False, len(ids)
        spans = split_spans(self._spans(state.step, len(ids)), self._limit.samples)
        return [
            Microbatch(group, ids_in(ids, group), number == len(spans) - 1)
            for number, group in enumerate(spans)
        ]

    def share(self, step: int, ids: Ids) -> Ids:
        """Return this worker's samples of a step."""
        return ids_in(ids, self._spans(step, len(ids)))

    def _spans(self, step: int, units: int) -> tuple[Span, ...]:
        in_flight = self._state.in_flight if step == self._state.step else InFlight()
        min_units = MIN_REDIVIDED_SAMPLES if in_flight.group_spans else 1
        own_share = _share_of(self._worker, units, in_flight.group_spans, min_units)
        return merge_spans([*own_share, *in_flight.spans_to_recompute])

    def begin(self, microbatch: Microbatch) -> None:
        """Start a micro-batch; if it is the last, the sums of its gradients may start during the backward pass."""
        self._begin(last=microbatch.last)

    def _begin(self, *, last: bool) -> None:
        assignment, is_alone = self._worker.assignment, self._worker.assignment.world_size == 1
        starts_early = last and not is_alone and self._worker.overlaps(self._options.overlap)
        begin = assignment.begin_all_reduce if starts_early else None
        self._reducer.begin_microbatch(begin, single=is_alone, last=last)
        self._has_begun = self._has_begun or last

    def end(self, microbatch: Microbatch, loss: torch.Tensor | None) -> bool:
        """Complete a micro-batch."""
        state = self._state
        self._reducer.add_microbatch(len(microbatch.ids) / self._samples)
        # Read after the reducer has started its kernels: reading waits for all work of a GPU.
        state.in_flight = state.in_flight.with_units(
            microbatch.spans, _number(loss), microbatch.ids, state.step
        )
        return self._reducer.has_gradients

    def sum(self, *, has_loss: bool) -> Sums | None:
        """Sum over all workers."""
        if not self._has_begun:  # a share without samples
            self._begin(last=True)
            self._reducer.add_microbatch(0.0)
        in_flight, group = self._state.in_flight, self._worker.group
        is_hung = self._worker.saves and self._state.checkpoints.is_hung
        own_votes = [*group.regroup_votes(), float(is_hung), float(self._worker.requests_stop)]
        samples_read = [float(in_flight.samples), *to_limbs(in_flight.digest)]
        self._worker.accounting.begin(Activity.EXCHANGE)
        total, known_losses, votes, leavers, hung_savers, stops, samples, *limbs = (
            self._reducer.sum(
                [in_flight.loss, float(has_loss), *own_votes, *samples_read],
                self._worker.assignment.sum,
            )
        )
        self._state.in_flight = InFlight()
        # Use the sum: a worker without samples has no loss of its own, but must reach the same decision.
        unchecked = known_losses > 0 and not self._checks_gradients
        finite = math.isfinite(total) and (unchecked or self._reducer.is_finite())
        return Sums(
            total,
            finite,
            round(votes),
            round(leavers),
            round(hung_savers),
            round(stops),
            round(samples),
            from_limbs(limbs),
        )


class ExactSteps:
    """Steps in mode `exact`: sums in integers, shard by shard."""

    def __init__(
        self, options: RunOptions, state: RunState, worker: Worker, reducer: ExactReducer
    ) -> None:
        self._state, self._worker, self._reducer = state, worker, reducer
        self._shard_size = options.exact_shard_size
        self._samples = 0

    def plan(self, ids: Ids) -> list[Microbatch]:
        """Start the next step."""
        state = self._state
        if not state.in_flight.own_spans:
            self._reducer.clear()
        self._samples = len(ids)
        shards = split_into_shards(ids, self._shard_size)
        numbers = [n for span in self._spans(state.step, len(shards)) for n in range(*span)]
        return [Microbatch(((n, n + 1),), shards[n], n == numbers[-1]) for n in numbers]

    def share(self, step: int, ids: Ids) -> Ids:
        """Return this worker's samples of a step."""
        size = self._shard_size
        return ids_in(ids, self._spans(step, -(-len(ids) // size)), size)

    def _spans(self, step: int, units: int) -> tuple[Span, ...]:
        in_flight = self._state.in_flight if step == self._state.step else InFlight()
        return merge_spans(
            [
                *_share_of(self._worker, units, in_flight.group_spans, 1),
                *in_flight.spans_to_recompute,
            ]
        )

    def begin(self, microbatch: Microbatch) -> None:
        """Start a shard."""
        del microbatch
        self._reducer.begin_shard()

    def end(self, microbatch: Microbatch, loss: torch.Tensor | None) -> bool:
        """Complete a shard."""
        state = self._state
        has_gradients = self._reducer.has_gradients
        fits, mean = self._reducer.add_shard(len(microbatch.ids)), _number(loss)
        # Integers have no NaN, so the count of unusable shards informs all workers.
        is_usable = fits and math.isfinite(mean)
        scaled_loss = round(mean * LOSS_SCALE) if is_usable else 0
        state.in_flight = state.in_flight.with_units(
            microbatch.spans, scaled_loss, microbatch.ids, state.step, unusable=not is_usable
        )
        return has_gradients

    def sum(self, *, has_loss: bool) -> Sums | None:
        """Sum over all workers; None if a shard's gradient exceeded its fixed-point range."""
        del has_loss  # gradients are checked in any case
        in_flight, group = self._state.in_flight, self._worker.group
        is_hung = self._worker.saves and self._state.checkpoints.is_hung
        own_votes = [*group.regroup_votes(), is_hung, self._worker.requests_stop]
        samples_read = [in_flight.samples, *map(round, to_limbs(in_flight.digest))]
        self._worker.accounting.begin(Activity.EXCHANGE)
        scalars = self._reducer.sum(
            self._samples,
            [round(in_flight.loss), in_flight.unusable_shards, *map(int, own_votes), *samples_read],
            self._worker.assignment.sum,
        )
        self._state.in_flight = InFlight()
        if scalars is None:
            self._worker.journal.note("coarser_unit", step=self._state.step + 1)
            return None
        total, unusable, votes, leavers, hung_savers, stops, samples, *limbs = scalars
        if not unusable:
            self._reducer.adapt_ranges()
        mean = math.nan if unusable else total / LOSS_SCALE
        digest = from_limbs(limbs)
        return Sums(mean, not unusable, votes, leavers, hung_savers, stops, samples, digest)


def _number(loss: torch.Tensor | None) -> float:
    return 0.0 if loss is None else float(loss)


def _share_of(
    worker: Worker, units: int, done_spans: tuple[Span, ...], min_units: int
) -> tuple[Span, ...]:
    """Return this worker's share of a step's units, of which `done_spans` are computed."""
    assignment = worker.assignment
    missing_spans = remaining_spans(units, done_spans)
    return split_share(missing_spans, assignment.rank, assignment.world_size, min_units=min_units)


def ids_in(ids: Ids, spans: Iterable[Span], unit: int = 1) -> Ids:
    """Return the samples of these spans, with `unit` samples per unit."""
    return np.concatenate([ids[:0], *(ids[start * unit : end * unit] for start, end in spans)])
