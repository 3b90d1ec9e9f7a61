"""One step of a run, as the training loop uses it: micro-batches, their weights, and `step`."""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from types import TracebackType
from typing import Any, Self

import torch
from torch.nn.utils.rnn import PackedSequence

from everstep.elastic.accounting.time_account import Activity
from everstep.elastic.data_order.sampler import Ids
from everstep.elastic.training.microbatches import Microbatch
from everstep.elastic.training.session import Session
from everstep.elastic.training.worker import announce_errors
from everstep.elastic.transport.group import PeerLostError
from everstep.errors import EverstepError


class Batch:
    """This worker's share of one step's global batch.

    Use it as a context manager to let the library end a forward or backward pass whose group is gone,
    and halve the micro-batches after an out-of-memory error: the next batch is then the same step.

    Attributes:
        number: number of the step, from 1.
        epoch: epoch of the step, from 0.
        size: samples of the global batch.
        is_warm_up: whether the batch is computed before this worker joins the others, and then discarded.
        loss: mean loss over the global batch once `step` has returned True; NaN before, and if no loss was passed to
            `backward`.
    """

    def __init__(
        self,
        session: Session,
        ids: Ids,
        planned_microbatches: Sequence[Microbatch],
        *,
        is_warm_up: bool = False,
    ) -> None:
        self._session, self._planned_microbatches = session, planned_microbatches
        completed = session.state.step
        self.number, self.epoch = completed + 1, session.order.epoch_of(completed)
        self.size, self.is_warm_up = len(ids), is_warm_up
        self.loss = float("nan")
        self._current: Microbatch | None = None
        # This worker's share of the current micro-batch's loss.
        self._loss: torch.Tensor | None = None
        self._computed = self._stepped = self._is_over = False

    @property
    def indices(self) -> torch.Tensor:
        """The data set's indices of the current micro-batch, or else of this worker's whole share; int64."""
        microbatches = [self._current] if self._current else self._planned_microbatches
        return torch.cat(
            [torch.empty(0, dtype=torch.int64), *(torch.from_numpy(m.ids) for m in microbatches)]
        )

    def microbatches(self) -> Iterator[Any]:
        """Yield this worker's micro-batches: collated samples on the model's device, or indices.

        The iteration ends early if the group is gone.

        Raises:
            EverstepError: the method is called twice, or no gradient has been computed by the end of a micro-batch.
        """
        if self._computed or self._current:
            raise self._misuse("microbatches() was called twice")
        for microbatch in self._planned_microbatches:
            if not self.is_warm_up and not self._session.is_group_intact():
                self._is_over = True
                return
            yield self._begin(microbatch)
            self._end(microbatch)
        self._computed = True

    def _begin(self, microbatch: Microbatch) -> Any:  # noqa: ANN401 - of the user's data set
        self._current, self._loss = microbatch, None
        accounting = self._session.worker.accounting
        accounting.begin(Activity.DATA)
        self._session.begin_microbatch(microbatch, is_warm_up=self.is_warm_up)
        with announce_errors(self._session.worker.group):
            samples = self._session.load(microbatch.ids, self.epoch)
        accounting.begin(Activity.COMPUTE)
        return samples

    def _end(self, microbatch: Microbatch) -> None:
        if not self.is_warm_up and not self._session.end_microbatch(microbatch, self._loss):
            raise self._misuse(
                "no gradient was computed: backward() was not called, or no parameter requires one"
            )
        self._current = None

    def weight(self, samples: object = None) -> float:
        """Return the samples' share of the global batch, which is the weight of their mean loss.

        Args:
            samples: samples of the loss, or their number; None for the current micro-batch. Tensors in a list, a tuple
                or a mapping are parts of collated samples if they have the same first dimension, unless a list or a
                tuple has one item for each sample of the micro-batch.

        Raises:
            EverstepError: `samples` is None outside `microbatches`, has more samples than the current micro-batch, or
                is a mapping without tensors or with tensors of different first dimensions.
        """
        current_count = None if self._current is None else len(self._current.ids)
        count = current_count if samples is None else _count(samples, current_count)
        if count is None and samples is not None:
            raise self._misuse(
                "weight() cannot count the samples of this mapping: pass their number"
            )
        if count is None:
            raise self._misuse("weight() needs samples outside microbatches()")
        if current_count is not None and count > current_count:
            raise self._misuse(
                f"weight() got {count} samples of a micro-batch of {current_count}: pass their number"
            )
        return count / self.size

    def backward(self, loss: torch.Tensor, samples: object = None) -> None:
        """Run the backward pass of a mean loss with its weight, and add it to the step's loss.

        Args:
            loss: mean over the current micro-batch, or over `samples`.
            samples: samples of the loss, if they are only a part of the micro-batch.
        """
        share = loss * self.weight(samples)
        self._loss = share.detach() + (self._loss if self._loss is not None else 0.0)
        self._session.note_loss()
        scaler = self._session.scaler
        (scaler.scale(share) if scaler else share).backward()  # type: ignore[no-untyped-call]

    def step(self) -> bool:
        """Sum the gradients of all workers, and complete the step on all of them or on none.

        Returns:
            True if the step is complete: applied, or skipped because its loss or gradients are not finite. False
            after a warm-up, or if the group broke, memory ran out, or a gradient exceeded its fixed-point range;
            the next batch is then the same step.

        Raises:
            EverstepError: the method is called twice or too early, or the run has failed.
        """
        if self._stepped:
            raise self._misuse("step() was called twice")
        self._stepped, self._session.has_open_batch = True, False
        if self._is_over:
            return False
        if not self._computed:
            raise self._misuse("step() was called before all of microbatches() was consumed")
        if self.is_warm_up:
            self._session.end_warm_up()
            return False
        loss = self._session.sum_and_apply()
        if loss is None:
            return False
        self.loss = loss
        return True

    def close(self) -> None:
        """Raise an EverstepError if the loop continued without `step`."""
        if not self._stepped and not self._is_over:
            raise self._misuse("the loop continued without step()")

    def __enter__(self) -> Self:
        """Allow the library to interrupt the computation in the block."""
        self._session.interruptible = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Suppress the error of a lost group or exhausted memory, so that the loop computes the same step again."""
        self._session.interruptible = False
        if isinstance(error, PeerLostError):
            self._is_over = True
            self._session.lose_group(str(error))
            return True
        if isinstance(error, torch.OutOfMemoryError) and self._current:
            self._is_over = True
            traceback.clear_frames(trace)  # they hold the memory that the next attempt needs
            self._session.lower_microbatch(len(self._current.ids))
            return True
        return False

    def _misuse(self, problem: str) -> EverstepError:
        return self._session.announce_failure(
            f"step {self.number}: {problem}",
            "Consume batch.microbatches(), run a backward pass for each, then call batch.step() once.",
        )


def _count(samples: object, current_count: int | None) -> int | None:
    """Return the number of samples in a batch; None for a mapping whose tensors do not show it.

    A list or tuple has the parts of collated samples, or one item for each sample, such as images of different sizes:
    if one of the two possible numbers is the size of the current micro-batch, it is returned.
    """
    if isinstance(samples, Integral):
        return int(samples)
    if isinstance(samples, PackedSequence):
        return int(samples.batch_sizes[0])
    if isinstance(samples, Mapping):
        sizes = set(_sizes_in(samples))
        return sizes.pop() if len(sizes) == 1 else None
    if isinstance(samples, list | tuple):
        sizes = {len(part) for part in samples if isinstance(part, torch.Tensor) and part.ndim}
        if current_count in {*sizes, len(samples)}:
            return current_count
        return sizes.pop() if len(sizes) == 1 else len(samples)
    return len(samples)  # type: ignore[arg-type] # anything with a length


def _sizes_in(batch: Mapping[Any, Any]) -> Iterator[int]:
    """Yield the first dimension of each tensor of a collated batch; other values, such as paths, have none."""
    for part in batch.values():
        if isinstance(part, Mapping):
            yield from _sizes_in(part)
        elif isinstance(part, torch.Tensor) and part.ndim:
            yield len(part)
