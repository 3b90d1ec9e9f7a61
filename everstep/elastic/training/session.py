"""The work of a run on one worker: it joins, loses and leaves groups, computes and applies steps.

A training loop accesses it through `Run` and `Batch`. Only the training loop's thread uses it, except for `reading`.
"""

import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import torch

from everstep.catalog import metrics
from everstep.catalog.plurals import amount
from everstep.elastic.accounting import journal
from everstep.elastic.accounting.metrics import Reading
from everstep.elastic.accounting.time_account import Activity
from everstep.elastic.data_order.sampler import Ids, SampleOrder
from everstep.elastic.recovery.worker import Votes
from everstep.elastic.training.clipping import clip, clip_shards, sum_of_squares
from everstep.elastic.training.microbatches import Microbatch, MicrobatchLimit
from everstep.elastic.training.options import RunHooks, RunOptions
from everstep.elastic.training.skipped_steps import (
    SkipReason,
    divergence_error,
    max_skipped_steps,
    reason_to_skip,
)
from everstep.elastic.training.steps import Steps, Sums
from everstep.elastic.training.training_state import RunState
from everstep.elastic.training.worker import Worker, announce_errors, worker_name
from everstep.elastic.transport.group import (
    PeerLostError,
    RankAssignment,
    broadcast_text,
    node_name,
)
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

COMPLETE, TAKEN_OVER = "yes", "another generation has taken over and completes the run"
"""Results of a saver that completed the run, or may not; any other result is the reason why it could not."""

READ_AHEAD = 1  # steps whose samples are read while the current one computes
KEPT_STEPS = 500  # maximum number of steps whose journal lines a worker keeps without writing them


class RandomPart(IntEnum):
    """Parts of a step that may draw random numbers and change the state, equally on all workers."""

    UPDATE = 1  # the optimizer's step, such as stochastic rounding
    STEP_CALLBACK = 2
    EPOCH_CALLBACK = 3


@dataclass
class Session:
    """The parts of a run on one worker.

    Attributes:
        options: options of the run.
        state: state that the next step depends on.
        steps: computation of steps in the run's mode.
        worker: this process.
        order: order of the samples.
        limit: bound on the size of micro-batches.
        hooks: callbacks of the program.
        complete_run: called on one worker after the last checkpoint is committed.
        load: function that returns the samples with these IDs in an epoch, in the form that the loop needs.
        job: name of the run, and additional fields for the journal's first line.
        scaler: gradient scaler, if any.
        scheduler: learning-rate scheduler, if any; it takes a step after each applied step.
        step_callbacks: callbacks after each applied step.
        attached: whether this worker is in a group; a process without peers is a group of one.
        interruptible: whether the hooks on the model's layers may end a forward or backward pass early.
        has_open_batch: whether the loop has got a batch whose `step` it has not called.
    """

    options: RunOptions
    state: RunState
    steps: Steps
    worker: Worker
    order: SampleOrder
    limit: MicrobatchLimit
    hooks: RunHooks
    complete_run: Callable[[], None]
    load: Callable[[Ids, int], Any]
    job: Mapping[str, Any]
    scaler: torch.amp.GradScaler | None = None
    scheduler: Any = None
    step_callbacks: list[Callable[[], object]] = field(default_factory=list)
    attached: bool = False
    interruptible: bool = False
    has_open_batch: bool = False
    _has_entered: bool = False
    _has_loss: bool = False
    _is_save_due: bool = False  # as agreed with the last step
    _step_began_at: float = 0.0
    _steps_done: int = 0  # completed by this process
    _last_step: dict[str, Any] = field(default_factory=dict)
    _kept_steps: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT_STEPS))

    @property
    def total_steps(self) -> int:
        """Steps of the run."""
        if self.state.is_stopped:
            return self.state.step
        return min(self.order.total_steps, self.options.max_steps or self.order.total_steps)

    # --- groups ---

    def join(self) -> None:
        """Wait for a generation and join it; a process without an agent restores its state."""
        if not self._has_entered:
            self.state.begin()
        assignment = self.worker.group.join(self.state)
        self._enter(assignment)
        self.attached = True
        self.state.checkpoints.check_folder(
            assignment, lambda: self.attached and self.worker.assignment is assignment
        )

    def _enter(self, assignment: RankAssignment) -> None:
        """Enter a generation: set the number of threads, record the generation in the journal, prepare checkpoints."""
        worker, state = self.worker, self.state
        promoted = self._has_entered and assignment.rank == 0 and not worker.leads
        worker.assignment, worker.saver = assignment, 0
        self._is_save_due = False  # a worker of the node may be a new process
        worker.set_threads(exact=self.options.exact)
        if not self._has_entered:
            self._note_start()
            worker.accounting.on_report(self.note_seconds)
        self.note_seconds()
        if assignment.unequal_ranks:
            ranks = assignment.unequal_ranks
            worker.journal.note("unequal_state", step=state.step, ranks=ranks)
        worker.journal.note(
            "generation",
            generation=worker.group.generation,
            world_size=assignment.world_size,
            rank=assignment.rank,
            step=state.step,
            received_bytes=dict(assignment.received_bytes),
        )
        self._record_kept_steps(assignment)
        if worker.leads:
            state.checkpoints.prepare(state.all_tensors())
        if promoted or not self._has_entered:
            state.checkpoints.become_writer(state.step, promoted=promoted)
        self._has_entered = True

    def lose_group(self, reason: str) -> None:
        """Roll back and leave a broken group."""
        group, state = self.worker.group, self.state
        group.handle_group_loss(reason)
        self.attached = False
        samples = state.in_flight.samples
        self.worker.journal.note("lost", step=state.step, reason=group.regroup_reason, kept=samples)

    def is_group_intact(self) -> bool:
        """Return True if this worker's group is intact; otherwise, leave it."""
        try:
            self.worker.group.check()
        except PeerLostError as error:
            self.lose_group(str(error))
            return False
        return True

    def regroup(self, leavers: int) -> None:
        """Leave the group because the workers have agreed to regroup outside a step."""
        self._save_before_regroup(leavers)
        self.worker.group.handle_agreement(leavers)
        self.attached = False

    # --- steps ---

    def plan(self) -> tuple[Ids, Sequence[Microbatch]]:
        """Start the next step; return the samples of its global batch and this worker's micro-batches."""
        self._step_began_at = time.monotonic()
        self.worker.accounting.begin_step()
        if self.hooks.prefetch:
            self.hooks.prefetch(self._upcoming())
        ids = self.order.batch(self.state.step)
        return ids, self.steps.plan(ids)

    def _upcoming(self) -> list[tuple[int, Ids]]:
        """Return this worker's samples of this step, and of the next one if the group does not change."""
        step = self.state.step
        end = min(step + 1 + READ_AHEAD, self.total_steps)
        return [
            (self.order.epoch_of(number), self.steps.share(number, self.order.batch(number)))
            for number in range(step, end)
        ]

    def begin_microbatch(self, microbatch: Microbatch, *, is_warm_up: bool) -> None:
        """Start a micro-batch, and seed the generators of random numbers for it."""
        if not is_warm_up:
            self.steps.begin(microbatch)
        seed = dropout_seed(self.options.seed, self.state.step, microbatch.ids)
        _seed_generators(seed, self.worker.device)

    def end_microbatch(self, microbatch: Microbatch, loss: torch.Tensor | None) -> bool:
        """Complete a micro-batch; return False if no gradient was computed.

        Args:
            microbatch: the micro-batch.
            loss: its share of the mean loss over the global batch; None if `Batch.backward` was not used.
        """
        with announce_errors(self.worker.group):
            return self.steps.end(microbatch, loss)

    def end_warm_up(self) -> None:
        """Discard everything that a warm-up batch has computed."""
        self.state.reducer.roll_back()
        for parameter in self.state.model.parameters():
            parameter.grad = None

    def announce_failure(self, problem: str, fix: str) -> EverstepError:
        """Announce to all agents that the run has failed permanently; return the error to raise."""
        self.worker.group.report_failure(problem)
        return EverstepError(problem, fix)

    def note_loss(self) -> None:
        """Record that the loop passes its losses to `Batch.backward`."""
        self._has_loss = True

    def sum_and_apply(self) -> float | None:
        """Sum over all workers and apply the step; return its loss, or None if it must be computed again."""
        try:
            with announce_errors(self.worker.group):
                sums = self.steps.sum(has_loss=self._has_loss)
                return self._apply(sums) if sums else None
        except PeerLostError as error:
            self.lose_group(str(error))
            return None

    def lower_microbatch(self, samples: int) -> None:
        """Halve the micro-batches after an out-of-memory error, and discard this worker's gradients.

        Raises:
            EverstepError: one sample does not fit, or the shards of `exact` do not.
        """
        state = self.state
        with announce_errors(self.worker.group):
            if self.options.exact:
                raise EverstepError(
                    f"a shard of {amount(samples, 'sample')} does not fit into the memory of this device, and "
                    "the results of mode 'exact' depend on its size",
                    "Lower shard_size on all workers.",
                )
            self.limit.lower(samples)
        if state.reducer.sending:  # the others have received gradients that are not complete
            self.lose_group(f"{amount(samples, 'sample')} did not fit into memory")
            return
        remaining_units = state.in_flight.without_gradients()
        state.reducer.roll_back()
        state.in_flight = remaining_units
        if self.worker.device.type == "cuda":
            torch.cuda.empty_cache()

    def _apply(self, sums: Sums) -> float:
        """Apply a step whose sum has arrived, and leave the group if its workers agreed to."""
        self.worker.accounting.begin(Activity.COMPUTE)
        samples = len(self.order.batch(self.state.step))
        votes = self._agree(sums)
        is_finite, is_scaled = not votes.non_finite, self.scaler is not None
        if reason := reason_to_skip(sums.loss, finite=is_finite, scaled=is_scaled):
            self._skip_or_fail(reason, sums.loss)

        def apply() -> None:
            rate = self._learning_rate()
            self._skip_update(reason) if reason else self._update(votes)
            self.state.step += 1
            self.state.ledger = self.state.ledger.with_step(sums.samples, sums.digest)
            self._note_step(sums.loss, rate, samples)
            self.worker.accounting.end_step()
            if votes.stops:
                self.stop()
            if votes.hung:
                self._change_saver()
            if votes.regroup:
                self._save_before_regroup(votes.leavers)

        self.attached = not self.worker.group.after_all_reduce(votes, apply)
        return sums.loss if self._has_loss else math.nan

    def _agree(self, sums: Sums) -> Votes:
        """Return what all workers do after this step; workers with different shards have different sums.

        Raises:
            PeerLostError: a worker of the group is gone; the step is computed again.
        """
        is_due = self.worker.saves and self.state.checkpoints.is_due(self.state.step + 1)
        is_clipped = self.options.max_grad_norm is not None and self.worker.assignment.shards > 1
        squares = sum_of_squares(self._trained_parameters()) if is_clipped else 0.0
        votes = Votes(
            *(sums.votes, sums.leavers, sums.hung, sums.stops),
            due=float(is_due),
            squares=squares,
            non_finite=float(not sums.finite),
        )
        try:
            agreed_votes = self.worker.group.agree(votes)
        except PeerLostError:
            self.state.reducer.discard()  # the sum has changed the buffers
            raise
        self._is_save_due = bool(agreed_votes.due)
        return agreed_votes

    def stop(self) -> None:
        """End the run with the last completed step; all workers do so after the same step."""
        self.state.is_stopped = True
        if self.worker.records:
            self.worker.journal.note("early_stop", step=self.state.step)

    def _skip_update(self, reason: SkipReason) -> None:
        """Skip the update of a step: parameters, buffers, optimizer state and learning rate do not change."""
        self.state.skipped_steps += 1
        self.state.reducer.discard()
        if self.scaler and reason is SkipReason.OVERFLOW:
            self.scaler.unscale_(self.state.optimizer)  # the scaler observes the overflow
            self.scaler.update()

    def _update(self, votes: Votes) -> None:
        self._finish_snapshot()
        self._seed(RandomPart.UPDATE, self.worker.assignment.shard)
        self._take_optimizer_step(votes)
        if self.scheduler is not None:
            self.scheduler.step()
        for number, callback in enumerate(self.step_callbacks):
            self._seed(RandomPart.STEP_CALLBACK, number)
            callback()
        self.state.skipped_steps = 0

    def _seed(self, part: RandomPart, number: int) -> None:
        """Seed the generators for a part of this step, which all workers compute with equal random numbers."""
        seed = seed_of(self.options.seed, self.state.step, part, number)
        _seed_generators(seed, self.worker.device)

    def seed_epoch_callback(self, number: int) -> None:
        """Seed the generators for a callback at the end of an epoch, equally on all workers."""
        self._seed(RandomPart.EPOCH_CALLBACK, number)

    def _trained_parameters(self) -> list[torch.Tensor]:
        return [p for group in self.state.optimizer.param_groups for p in group["params"]]

    def _take_optimizer_step(self, votes: Votes) -> None:
        optimizer, scaler = self.state.optimizer, self.scaler
        self.state.optimizer_state.check_unchanged()
        self.state.optimizer_state.release()
        if scaler:
            scaler.unscale_(optimizer)
        if self.options.max_grad_norm is not None:
            self._clip(self.options.max_grad_norm, votes)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()

    def _clip(self, max_norm: float, votes: Votes) -> None:
        if self.worker.assignment.shards > 1:
            clip_shards(self._trained_parameters(), max_norm, votes.squares)
        else:
            clip(self._trained_parameters(), max_norm)

    def _skip_or_fail(self, reason: SkipReason, loss: float) -> None:
        """Record a step whose update is skipped, or end the run.

        Raises:
            EverstepError: the options end the run, or too many consecutive steps were skipped.
        """
        step, count = self.state.step + 1, self.state.skipped_steps + 1
        scale = {"scale": self.scaler.get_scale()} if self.scaler else {}
        self.worker.journal.note(reason.value, step=step, loss=str(loss), **scale)
        if count > max_skipped_steps(reason, self.options.nonfinite_loss):
            raise divergence_error(reason, step, loss, count, exact=self.options.exact)
        if reason is SkipReason.OVERFLOW:
            log.info("step %d is not applied to the model: its scaled gradients overflow", step)
        else:
            log.warning(
                "step %d is not applied to the model: its loss, %s, or its gradients are not finite",
                step,
                loss,
            )

    # --- checkpoints ---

    def save_if_due(self) -> None:
        """Start a checkpoint if one is due and this worker writes them."""
        agreed_due, self._is_save_due = self._is_save_due, False
        if not (self.attached and self.worker.saves):
            return
        # The workers of a node with one shard each have decided together, before the step was applied.
        is_shared = self.worker.assignment.shards > 1
        if agreed_due if is_shared else self.state.checkpoints.is_due(self.state.step):
            self._save()

    def _change_saver(self) -> None:
        """Make the worker of the next rank write the checkpoints: the current writer's storage hangs or fails.

        All workers of the group do so after the same step. The previous writer continues to train.
        """
        worker, checkpoints = self.worker, self.state.checkpoints
        worker.saver = (worker.saver + 1) % worker.assignment.world_size
        worker.journal.note("saver", step=self.state.step, rank=worker.saver)
        if worker.saves:
            log.error(
                "the previous checkpoint writer cannot write: this worker writes the checkpoints now"
            )
            checkpoints.become_writer(self.state.step, promoted=True)

    def _save(self) -> None:
        self.worker.accounting.begin(Activity.CHECKPOINT)
        self.state.save()

    def _finish_snapshot(self) -> None:
        """Wait until a snapshot is complete: then the state may change."""
        self.worker.accounting.begin(Activity.CHECKPOINT)
        self.state.checkpoints.wait_snapshot()
        self.worker.accounting.begin(Activity.COMPUTE)

    def _save_before_regroup(self, leavers: float) -> None:
        """Save the state if workers leave, and note this worker's own departure.

        The state survives in the workers that stay. But they may be lost before the next group is
        formed, and if none stays, only a checkpoint is left. So a checkpoint is written in the
        background whenever a worker leaves; a departing node waits for its own writes.
        """
        if leavers and self.worker.saves:
            self._save()
        if self.worker.group.leaving:
            self.note_seconds()
            reason = self.worker.group.regroup_reason
            self.worker.journal.note("leave", step=self.state.step, reason=reason)

    def complete(self) -> None:
        """Make one worker save the last state and announce to all agents that the run is complete.

        No worker returns before that: a job is done when all of its workers are. The others wait as long as the saver's
        storage responds.

        Raises:
            PeerLostError: a worker of the group is gone, or another generation has taken over.
            EverstepError: no worker can write the last checkpoint.
        """
        self.note_seconds()
        worker, reason = self.worker, ""
        for attempt in range(worker.assignment.world_size):
            result = self._complete_as_saver(attempt) if worker.saves else ""
            try:
                reason = broadcast_text(
                    worker.assignment, f"finished-{attempt}", result, worker.saver
                )
            except PeerLostError:
                if result != COMPLETE:
                    raise
                return  # announced: the others learn it from their agents
            if reason == COMPLETE:
                return
            self._change_saver()
        raise EverstepError(
            f"the last checkpoint, of step {self.state.step}, cannot be written by any worker: {reason}",
            "Check the storage, then start the job again: it continues from the last committed checkpoint.",
        )

    def _complete_as_saver(self, attempt: int) -> str:
        """Save the last state and announce the end of the run; return `COMPLETE`, or why it cannot be saved.

        If the node's workers have shards of the model, each saves its own, and the first one's result counts for all.

        Raises:
            PeerLostError: another generation has taken over.
        """
        worker, leads_node = self.worker, self.worker.assignment.shard == 0
        others_wait = worker.assignment.world_size * worker.assignment.shards > 1
        with self.state.watch_completion(worker.group.give_up) if others_wait else nullcontext():
            own_result = self._save_and_announce() if leads_node else self._save_last_state()
        result = self.worker.group.agree_in_node(f"completed-{attempt}", own_result)
        if result == TAKEN_OVER:
            raise PeerLostError(TAKEN_OVER)
        return result

    def _save_last_state(self) -> str:
        """Save the last state; return the reason if that fails, or an empty string."""
        self._save()
        if not self.state.checkpoints.wait():
            seconds = self.options.storage_timeout_seconds
            return f"its storage has not responded for at least {seconds:.0f} s"
        return self.state.checkpoints.failure

    def _save_and_announce(self) -> str:
        """Save the last state and announce the end of the run; return the result of the saver."""
        worker, state = self.worker, self.state
        if self.hooks.open() is None:
            if failure := self._save_last_state():
                return failure
            if not state.checkpoints.commit(worker.group.generation, state.step):
                return TAKEN_OVER
            self.complete_run()
        results = ", ".join(f"{name} {value:.4f}" for name, value in state.metric_values().items())
        worker.group.report_completion(f"{state.step} steps{results and ', '}{results}")
        return COMPLETE

    # --- records ---

    def note_seconds(self) -> None:
        """Record the seconds of this process by activity, since its start."""
        seconds = self.worker.accounting.total_seconds()
        processor = round(time.process_time(), 4)
        self.worker.journal.note("seconds", step=self.state.step, **seconds, processor=processor)

    def reading(self) -> Reading:
        """Return the values for Prometheus; thread-safe."""
        accounting = self.worker.accounting
        return Reading(
            job=str(self.job["job"]),
            worker=worker_name(),
            seconds=accounting.final_seconds(),
            values={
                **self._progress(),
                **self.state.checkpoints.metric_values(saves=self.worker.saves),
                metrics.GENERATION: self.worker.group.generation,
                metrics.GROUP_WORKERS: self.worker.assignment.world_size,
                metrics.LAST_RECOVERY: accounting.last_recovery,
            },
        )

    def _progress(self) -> dict[metrics.Metric, float | None]:
        last_step = self._last_step
        return {
            metrics.WORKER_STEPS: self._steps_done,
            metrics.STEP: self.state.step,
            metrics.PLANNED_STEPS: self.total_steps,
            metrics.SAMPLES: self.state.ledger.samples,
            metrics.LOSS: last_step.get("loss"),
            metrics.LEARNING_RATE: last_step.get("learning_rate"),
        }

    def _learning_rate(self) -> float:
        return float(self.state.optimizer.param_groups[0]["lr"])

    def _note_start(self) -> None:
        worker, options = self.worker, self.options
        worker.journal.note(
            "start",
            worker=worker_name(),
            node=node_name(),
            **self.job,
            world_size=worker.assignment.world_size,
            rank=worker.assignment.rank,
            generation=worker.group.generation,
            total_steps=self.total_steps,
            epochs=options.epochs,
            global_batch=options.global_batch,
            dataset_size=self.order.samples,
            mode=options.mode,
            summed_bytes=self.state.reducer.summed_bytes,
            checkpoint_seconds=options.checkpoint_seconds,
        )

    def _record_kept_steps(self, assignment: RankAssignment) -> None:
        """Record the newest steps that another worker should have recorded, marked `again`.

        That worker may be gone, and the lines of its last steps with it: it was killed before they were written, or
        its machine was lost before the file was closed. One of the workers that have completed these steps records
        them. It need not be rank 0, which may be a new process.
        """
        if assignment.rank not in assignment.sources:
            self._kept_steps.clear()  # its steps may be of a history that the others have left
        if assignment.rank != min(assignment.sources, default=-1):
            return
        oldest = time.time() - journal.LARGE_CLOSE_SECONDS
        for step in self._kept_steps:
            if step["at"] >= oldest:
                self.worker.journal.note("step", **step, again=True)
        self._kept_steps.clear()

    def _note_step(self, loss: float, rate: float, samples: int) -> None:
        """Record the step on rank 0; the others keep its line, in case one of them must record it."""
        state, worker = self.state, self.worker
        self._steps_done += 1
        self._last_step = {
            "at": round(time.time(), 4),
            "step": state.step,
            "epoch": self.order.epoch_of(state.step - 1) + 1,
            "seconds": round(time.monotonic() - self._step_began_at, 4),
            "images": samples,
            "loss": round(loss, 5) if self._has_loss and math.isfinite(loss) else None,
            "learning_rate": round(rate, 6),
            "world_size": worker.assignment.world_size,
            "generation": worker.group.generation,
        }
        if worker.records:
            worker.journal.note("step", **self._last_step)
        elif worker.assignment.shard == 0:
            self._kept_steps.append(self._last_step)


def _seed_generators(seed: int, device: torch.device) -> None:
    """Seed the generators of Python, numpy and torch, on the CPU and on the model's kind of device.

    The workers of a node are forked from one process, so without a seed numpy would draw the same numbers in all of
    them, and again in a worker that starts after a crash.

    `torch.manual_seed` seeds all kinds, but formats a stack trace for each absent kind of accelerator (0.1 ms).
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if device.type not in {"cpu", "cuda"}:
        torch.manual_seed(seed)
        return
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


def dropout_seed(seed: int, step: int, ids: Ids) -> int:
    """Return the seed of random layers (dropout, stochastic depth) and of random augmentations.

    It depends on the step and the first sample, and not on earlier draws of this process: a worker that joins, or
    that repeats a step, drops the same activations.
    """
    return _seed_from(np.random.SeedSequence([seed, step, int(ids[0])]))


def seed_of(seed: int, step: int, part: RandomPart, number: int) -> int:
    """Return the seed of one part: it depends on nothing in which two workers with this part differ.

    Args:
        seed: seed of the run.
        step: completed steps.
        part: the part.
        number: number of the callback, or of the worker's shard of the model.
    """
    return _seed_from(np.random.SeedSequence([seed, step], spawn_key=(part, number)))


def _seed_from(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1, np.uint64)[0]) % 2**63
