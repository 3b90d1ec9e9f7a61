"""Evaluation by all workers of a group: exact sums over a data set, regardless of the number of workers."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from everstep.elastic.accounting.time_account import Activity
from everstep.elastic.data_order.sampler import Ids, share
from everstep.elastic.recovery.worker import Votes
from everstep.elastic.training.session import Session
from everstep.elastic.transport.group import PeerLostError
from everstep.elastic.transport.reducer import sum_scalars
from everstep.errors import EverstepError

CHUNK_SAMPLES = 1500  # samples between two votes on whether to regroup
MAX_BATCH = 256  # samples computed at a time


class RegroupError(Exception):
    """The workers have agreed to regroup during an evaluation, which the next group repeats.

    Args:
        leavers: number of workers whose nodes leave.
    """

    def __init__(self, leavers: int) -> None:
        super().__init__(leavers)
        self.leavers = leavers


class EpochEnd:
    """Operations with the other workers, for the callbacks at the end of an epoch."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._max_batch = MAX_BATCH
        self.running = False

    def run(self, callbacks: list[Callable[[int], object]], epoch: int) -> bool:
        """Call all callbacks with the number of completed epochs; return False if the workers regroup.

        Raises:
            PeerLostError: the group broke.
        """
        state = self._session.state
        self._session.worker.accounting.begin(Activity.EVALUATION)
        text, requests_stop = state.non_tensor_state(), self._session.worker.requests_stop
        self.running = self._session.interruptible = True
        try:
            for number, callback in enumerate(callbacks):
                self._session.seed_epoch_callback(number)
                callback(epoch)
            stops = self._count_stops()
        except (RegroupError, PeerLostError) as error:
            # Other workers may have got further, and the callbacks run again.
            state.restore_non_tensor_state(text)
            self._session.worker.requests_stop = requests_stop
            if isinstance(error, PeerLostError):
                raise
            self._session.regroup(error.leavers)
            return False
        finally:
            self.running = self._session.interruptible = False
        if stops:
            self._session.stop()
        return True

    def _count_stops(self) -> int:
        """Return the number of workers whose program ends the run with this epoch, once all callbacks have returned."""
        worker = self._session.worker
        (stops,) = sum_scalars([float(worker.requests_stop)], worker.device, worker.assignment.sum)
        return round(worker.group.agree(Votes(stops=stops)).stops)

    def sum(self, *values: float) -> list[float]:
        """Return the sums of these numbers over all workers.

        Raises:
            EverstepError: the call is not in a callback of `Run.each_epoch`.
            PeerLostError: the group broke.
            RegroupError: the workers have agreed to regroup.
        """
        self._check()
        worker = self._session.worker
        worker.group.check()
        *sums, regroup, leavers = sum_scalars(
            [*values, *worker.group.regroup_votes()], worker.device, worker.assignment.sum
        )
        votes = worker.group.agree(Votes(regroup=regroup, leavers=leavers))
        if votes.regroup:
            raise RegroupError(round(votes.leavers))
        return sums

    def share(self, ids: Ids) -> Ids:
        """Return this worker's share of these samples."""
        self._check()
        assignment = self._session.worker.assignment
        return ids[share(len(ids), assignment.rank, assignment.world_size)]

    @torch.no_grad()
    def evaluate(
        self,
        size: int,
        load: Callable[[Ids], Any],
        score: Callable[..., Mapping[str, Any]],
        prefetch: Callable[[Ids, Ids], None] | None = None,
    ) -> dict[str, float]:
        """Return the means of the scores over `size` samples; see `Run.evaluate` for the arguments."""
        self._check()
        model = self._session.state.model
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        totals: dict[str, float] = {}
        try:
            for first in range(0, size, CHUNK_SAMPLES):
                own_share, next_share = (
                    self.share(np.arange(start, max(start, min(start + CHUNK_SAMPLES, size))))
                    for start in (first, first + CHUNK_SAMPLES)
                )
                if prefetch:
                    prefetch(own_share, next_share)
                own_sums = self._sum_scores(own_share, load, score)
                if not len(own_share):  # contribute zeros to the sums of the other workers
                    own_sums = dict.fromkeys(self._sum_scores(np.arange(1), load, score), 0.0)
                names = sorted(own_sums)
                sums = self.sum(*(own_sums[name] for name in names))
                totals = {n: totals.get(n, 0.0) + s for n, s in zip(names, sums, strict=True)}
        finally:
            for module, was_training in modes:  # some layers may be frozen
                module.training = was_training
        return {name: total / size for name, total in totals.items()}

    def _sum_scores(
        self, ids: Ids, load: Callable[[Ids], Any], score: Callable[..., Mapping[str, Any]]
    ) -> dict[str, float]:
        """Return the sums of the scores over these samples; after an out-of-memory error, compute fewer at a time."""
        sums: dict[str, float] = {}
        self._max_batch = min(self._max_batch, self._session.limit.samples or self._max_batch)
        first = 0
        while first < len(ids):
            self._session.worker.group.check()
            batch = ids[first : first + self._max_batch]
            try:
                totals = _scores(load(batch), len(batch), score)
            except torch.OutOfMemoryError as error:
                if len(batch) == 1:
                    raise EverstepError(
                        f"one sample of the evaluation does not fit into the memory of this device: {error}",
                        "Use smaller samples or another score, or a device with more memory.",
                    ) from error
                self._max_batch = len(batch) // 2
            else:
                for name, total in totals.items():
                    sums[name] = sums.get(name, 0.0) + total
                first += len(batch)
        return sums

    def _check(self) -> None:
        if not self.running:
            raise EverstepError(
                "the workers evaluate together only in a callback of Run.each_epoch",
                "Decorate the evaluation with @run.each_epoch: the next group then repeats it if the group changes.",
            )


def _scores(
    samples: Any,  # noqa: ANN401 - of the user
    count: int,
    score: Callable[..., Mapping[str, Any]],
) -> dict[str, float]:
    """Return the sums of the scores over one batch."""
    arguments = samples if isinstance(samples, tuple | list) else (samples,)
    return {name: _total(name, value, count) for name, value in score(*arguments).items()}


def _total(name: str, value: Any, samples: int) -> float:  # noqa: ANN401 - of the user
    """Return the sum over a batch of a score with one value for each sample."""
    has_one_value_each = (
        isinstance(value, torch.Tensor)
        and value.shape[:1] == (samples,)
        and value.numel() == samples
        and not value.is_complex()
    )
    if has_one_value_each:
        return float(value.double().sum())
    raise EverstepError(
        f"the score {name!r} is not a tensor with one real value for each of the {samples} samples",
        "Return one value for each sample, such as a mean over its tokens; the means are taken over the whole data "
        "set.",
    )
