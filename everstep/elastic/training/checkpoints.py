"""The checkpoints of a run: when they are due, where they are written, and which of them to continue from."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from everstep.catalog import metrics
from everstep.elastic.accounting.journal import Journal
from everstep.elastic.checkpoint.files import FencedError, Manifest
from everstep.elastic.checkpoint.restore import (
    CommitRecord,
    LostCheckpointError,
    SkippedCheckpoint,
)
from everstep.elastic.checkpoint.sharded_store import ShardedFolderStore
from everstep.elastic.checkpoint.state_format import EncodedState
from everstep.elastic.checkpoint.store import StoredCheckpoint
from everstep.elastic.checkpoint.writer import Writer
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.recovery.worker import Group
from everstep.elastic.training.options import RunOptions
from everstep.elastic.training.resume import choose_checkpoint
from everstep.elastic.training.run_storage import FolderStorage, RunStorage
from everstep.elastic.training.shared_folder import check_folder
from everstep.elastic.transport.group import RankAssignment

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WrittenCheckpoint:
    """The last committed checkpoint of this worker.

    Attributes:
        committed_at: Unix time at which the write was complete.
        seconds: duration of the write.
        size: size in bytes.
    """

    committed_at: float
    seconds: float
    size: int


PROMOTED_SAVE_SECONDS = 1.0
"""Time until the first checkpoint of a new rank 0, which does not know the age of the last one."""


class Checkpoints:
    """Checkpoints in a run's storage; without a storage there are none.

    Args:
        storage: storage of the run, or None.
        options: options of the run.
        fingerprint: settings that must be equal to continue from a checkpoint.
        group: group through which checkpoints are committed.
        journal: journal of this worker.
        leads: whether this worker commits what its node writes; False for a worker with a later shard.
    """

    def __init__(
        self,
        storage: RunStorage | None,
        options: RunOptions,
        fingerprint: Mapping[str, Any],
        group: Group,
        journal: Journal,
        *,
        leads: bool = True,
    ) -> None:
        self._leads = leads
        self._storage, self._options, self._fingerprint = storage, options, dict(fingerprint)
        self._group, self._journal = group, journal
        self._saved_at, self._saved_step = time.monotonic(), 0
        self._writer_since, self._writer_since_monotonic = time.time(), time.monotonic()
        self._last_written: WrittenCheckpoint | None = None
        self._failures = 0
        self._writer = self._create_writer(storage) if storage else None

    def _create_writer(self, storage: RunStorage) -> Writer:
        def on_written(manifest: Manifest, seconds: float, size: int) -> None:
            if not self._leads:  # the node's first worker records the checkpoint of all shards
                return
            self._journal.note(
                "checkpoint", step=manifest.step, seconds=round(seconds, 3), bytes=size
            )
            self._last_written = WrittenCheckpoint(time.time(), seconds, size)
            storage.note_commit(manifest)  # may fail

        return Writer(
            storage.checkpoints,
            commit=lambda manifest: self.commit(manifest.generation, manifest.step),
            on_written=on_written,
            on_failed=self._note_failure,
            keep=self._options.keep_checkpoints,
            timeout_seconds=self._options.storage_timeout_seconds,
        )

    def _note_failure(self, step: int, reason: str) -> None:
        self._failures += 1
        self._journal.note("checkpoint_failed", step=step, reason=reason)

    def metric_values(self, *, saves: bool) -> dict[metrics.Metric, float | None]:
        """Return the values for Prometheus; thread-safe. Empty for a run without checkpoints.

        Args:
            saves: whether this worker writes checkpoints.
        """
        if self._writer is None:
            return {}
        last_written = self._last_written
        saved_at = max(last_written.committed_at if last_written else 0.0, self._writer_since)
        return {
            metrics.CHECKPOINT_TIME: saved_at if saves and self._leads else None,
            metrics.CHECKPOINT_INTERVAL: self._options.checkpoint_seconds,
            metrics.CHECKPOINT_WRITE: last_written.seconds if last_written else None,
            metrics.CHECKPOINT_BYTES: last_written.size if last_written else None,
            metrics.CHECKPOINT_FAILURES: self._failures,
        }

    def check_types(self, state: Mapping[str, torch.Tensor]) -> None:
        """Refuse a state that could not be written; without a storage there is nothing to write.

        Raises:
            EverstepError: a tensor has a type that cannot be saved.
        """
        if self._storage:
            EncodedState(dict(state))

    def prepare(self, state: Mapping[str, torch.Tensor]) -> None:
        """Allocate the memory for snapshots in the background."""
        if self._writer:
            self._writer.prepare(state)

    def become_writer(self, step: int, *, promoted: bool) -> None:
        """Count the age of the last checkpoint from now; the next is due soon if this worker replaces a writer."""
        age = self._options.checkpoint_seconds - PROMOTED_SAVE_SECONDS if promoted else 0
        self._saved_at, self._saved_step = time.monotonic() - age, step
        self._writer_since, self._writer_since_monotonic = time.time(), time.monotonic()

    def check_folder(self, assignment: RankAssignment, is_current: Callable[[], bool]) -> None:
        """Start to check that this worker sees the same folder as rank 0; a bucket has one address everywhere.

        Args:
            assignment: rank in the group that this worker has joined.
            is_current: function that returns False once this worker has left the group.
        """
        if isinstance(self._storage, FolderStorage):
            check_folder(self._storage, assignment, self._group, is_current)

    @property
    def timeout_seconds(self) -> float:
        """Seconds without a response after which the storage counts as hung."""
        return self._options.storage_timeout_seconds

    @property
    def is_hung(self) -> bool:
        """True if a write hangs; the time before this worker became the writer does not count."""
        return self._writer is not None and self._writer.is_hung(self._writer_since_monotonic)

    def responded_at(self) -> float:
        """Return the monotonic time in seconds at which the storage last responded."""
        return self._storage.checkpoints.responded_at if self._storage else 0.0

    def is_due(self, step: int) -> bool:
        """Return True if the last checkpoint is old enough and its write is complete."""
        is_old = (
            time.monotonic() - self._saved_at >= self._options.checkpoint_seconds
            or step - self._saved_step >= self._options.checkpoint_steps
        )
        if not is_old or self._writer is None:
            return False
        if self._writer.busy:
            self._writer.report_if_stuck()
        return not self._writer.busy

    def save(
        self,
        step: int,
        tensors: Mapping[str, torch.Tensor],
        extra: Mapping[str, Any],
        unchanging_names: set[str],
    ) -> None:
        """Start a checkpoint; the tensors `unchanging_names` do not change before `wait_snapshot` has returned."""
        if self._writer is None:
            return
        self._saved_at, self._saved_step = time.monotonic(), step
        manifest = Manifest(
            *(step, self._group.generation, self._fingerprint, extra),
            snapshot=self._group.next_snapshot(),
        )
        self._writer.start(tensors, manifest, unchanging_names=unchanging_names)

    def wait_snapshot(self) -> None:
        """Wait until the snapshot is complete."""
        if self._writer:
            self._writer.wait_snapshot()

    def wait(self) -> bool:
        """Wait until no write is in progress; return False if a write hangs."""
        return self._writer is None or self._writer.wait()

    @property
    def failure(self) -> str:
        """Reason why the storage failed in the last finished write; empty if it did not.

        A refused commit does not count: its files are durable.
        """
        error = self._writer.failure if self._writer else None
        if error is None or isinstance(error, FencedError):
            return ""
        return str(error) or type(error).__name__

    def commit(self, generation: int, step: int) -> bool:
        """Commit a step's snapshot, taken in this generation; return False if the commit is refused."""
        run = self._storage.run_id() if self._storage else ""
        return self._group.commit(generation, step, run)

    def open(self, samples: int) -> None:
        """Record the start of the run, with this number of samples."""
        if self._storage and self._leads:
            self._storage.open(samples, self._fingerprint)

    def note_samples(self, step: int, samples: int) -> None:
        """Record the number of samples from the step after `step` on."""
        if self._storage and self._leads:
            self._storage.note_samples(step, samples, self._group.generation)

    def newest_checkpoint(self, committed: StepProgress) -> StoredCheckpoint | None:
        """Return the newest valid checkpoint of this run, after making the committed checkpoint visible.

        Raises:
            EverstepError: the committed checkpoint is lost, or all checkpoints belong to another run.
        """
        storage = self._storage
        if storage is None:
            return None
        record = CommitRecord(committed.agreed_generation, committed.step)
        # The record is another run's: this run is new, or its folder was moved away.
        if record.generation and committed.run != storage.run_id():
            self._journal.note("other_run_committed", step=record.step)
            log.warning(
                "the newest commit, of step %d, belongs to another run than %s: it is not used",
                *(record.step, storage.location),
            )
            record = CommitRecord()
        return choose_checkpoint(
            storage.checkpoints,
            self._fingerprint,
            self._options.accept_data,
            self._note_skip,
            record,
            self._options.accept_older_checkpoint,
            self._note_lost,
        )

    def own_shard(self, step: int, generation: int) -> StoredCheckpoint:
        """Return this worker's shard of the checkpoint that the node's first worker has chosen.

        Raises:
            ValueError: the shard is damaged, or the checkpoint was replaced.
        """
        store = self._storage.checkpoints if self._storage else None
        assert isinstance(store, ShardedFolderStore)  # noqa: S101 - others have no shards
        return store.check_own(step, generation)

    def _note_lost(self, lost: LostCheckpointError) -> None:
        log.warning("accepted: %s", lost.problem)
        self._journal.note(
            "lost_checkpoint",
            step=lost.record.step,
            restored=lost.restored_step,
            reason=lost.problem,
        )

    def _note_skip(self, skipped: SkippedCheckpoint) -> None:
        self._journal.note("skip_checkpoint", path=skipped.name, reason=skipped.reason)
