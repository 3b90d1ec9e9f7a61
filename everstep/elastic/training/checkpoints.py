"""The checkpoints of a run: when they are due, where they are written, which one to continue from."""

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from everstep.catalog import metrics
from everstep.elastic.accounting.journal import Journal
from everstep.elastic.checkpoint.files import Checkpoint, Manifest
from everstep.elastic.checkpoint.restore import (
    CommitRecord,
    LostCheckpointError,
    SkippedCheckpoint,
)
from everstep.elastic.checkpoint.writer import Writer
from everstep.elastic.recovery.state_machine import StepProgress
from everstep.elastic.recovery.worker import Group
from everstep.elastic.training.options import RunOptions
from everstep.elastic.training.resume import choose
from everstep.elastic.training.run_record import note_samples, open_record, run_id

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """The last committed checkpoint of this worker.

    Attributes:
        at: Unix time of the commit.
        seconds: time in which it was written.
        size: its size in bytes.
    """

    at: float
    seconds: float
    size: int


LEDGER_FILE = "ledger.jsonl"
PROMOTED_SAVE_SECONDS = 1.0
"""Time until the first checkpoint of a new rank 0, which does not know the age of the last one."""


class Checkpoints:
    """Checkpoints in a run's folder; without a folder there are none.

    Args:
        folder: folder of the run, or None.
        options: options of the run.
        fingerprint: settings that must be equal to continue from a checkpoint.
        group: group that allows commits.
        journal: journal of this worker.
    """

    def __init__(
        self,
        folder: Path | None,
        options: RunOptions,
        fingerprint: Mapping[str, Any],
        group: Group,
        journal: Journal,
    ) -> None:
        self._folder, self._options, self._fingerprint = folder, options, dict(fingerprint)
        self._group, self._journal = group, journal
        self._saved_at, self._saved_step = time.monotonic(), 0
        self._led_since = time.time()
        self._written: Written | None = None
        self._failures = 0
        self._writer = self._create_writer(folder) if folder else None

    def _create_writer(self, folder: Path) -> Writer:
        def on_written(manifest: Manifest, seconds: float, size: int) -> None:
            note_commit(folder, self._journal, manifest, seconds, size)
            self._written = Written(time.time(), seconds, size)

        return Writer(
            folder / "checkpoints",
            commit=lambda manifest: self.commit(manifest.generation, manifest.step),
            on_written=on_written,
            on_failed=self._note_failure,
            keep=self._options.keep_checkpoints,
        )

    def _note_failure(self, step: int, reason: str) -> None:
        self._failures += 1
        self._journal.note("checkpoint_failed", step=step, reason=reason)

    def reading(self, *, leads: bool) -> dict[metrics.Metric, float | None]:
        """Return the values for Prometheus; thread-safe. Empty for a run without checkpoints.

        Args:
            leads: whether this worker is rank 0, which alone writes checkpoints.
        """
        if self._writer is None:
            return {}
        written = self._written
        saved = max(written.at if written else 0.0, self._led_since)
        return {
            metrics.CHECKPOINT_TIME: saved if leads else None,
            metrics.CHECKPOINT_INTERVAL: self._options.checkpoint_seconds,
            metrics.CHECKPOINT_WRITE: written.seconds if written else None,
            metrics.CHECKPOINT_BYTES: written.size if written else None,
            metrics.CHECKPOINT_FAILURES: self._failures,
        }

    def prepare(self, state: Mapping[str, torch.Tensor]) -> None:
        """Allocate the memory for snapshots in the background."""
        if self._writer:
            self._writer.prepare(state)

    def begin_generation(self, step: int, *, promoted: bool) -> None:
        """Count the age of the last checkpoint from now; soon due if this worker became rank 0."""
        age = self._options.checkpoint_seconds - PROMOTED_SAVE_SECONDS if promoted else 0
        self._saved_at, self._saved_step = time.monotonic() - age, step
        self._led_since = time.time()

    def due(self, step: int) -> bool:
        """Return whether the last checkpoint is old enough, and written."""
        old = (
            time.monotonic() - self._saved_at >= self._options.checkpoint_seconds
            or step - self._saved_step >= self._options.checkpoint_steps
        )
        if not old or self._writer is None:
            return False
        if self._writer.busy:
            self._writer.report_if_stuck()
        return not self._writer.busy

    def save(
        self,
        step: int,
        tensors: Mapping[str, torch.Tensor],
        extra: Mapping[str, Any],
        unchanging: set[str],
    ) -> None:
        """Start a checkpoint; tensors named in `unchanging` do not change before `wait_snapshot` has returned."""
        if self._writer is None:
            return
        self._saved_at, self._saved_step = time.monotonic(), step
        manifest = Manifest(step, self._group.generation, self._fingerprint, extra)
        self._writer.start(tensors, manifest, unchanging=unchanging)

    def wait_snapshot(self) -> None:
        """Wait until the snapshot is complete."""
        if self._writer:
            self._writer.wait_snapshot()

    def wait(self) -> None:
        """Wait until no write is in progress."""
        if self._writer:
            self._writer.wait()

    def commit(self, generation: int, step: int) -> bool:
        """Commit a step's snapshot, taken in this generation; return False if it is fenced out."""
        run = run_id(self._folder) if self._folder else ""
        return self._group.commit(generation, step, run)

    def open(self, samples: int) -> None:
        """Record the start of the run, with this number of samples."""
        if self._folder:
            open_record(self._folder, samples, self._fingerprint)

    def note_samples(self, step: int, samples: int) -> None:
        """Record the number of samples from the step after `step` on."""
        if self._folder:
            note_samples(self._folder, step, samples)

    def newest(self, committed: StepProgress) -> Checkpoint | None:
        """Return the newest valid checkpoint of this run; first rename a committed one.

        Raises:
            EverstepError: the committed one is lost, or those that are there are of another run.
        """
        if self._folder is None:
            return None
        record = CommitRecord(committed.agreed_generation, committed.step)
        if record.generation and committed.run != run_id(self._folder):  # new, or was moved away
            self._journal.note("other_run_committed", step=record.step)
            log.warning(
                "the newest commit, of step %d, is of another folder than %s: it is not used",
                *(record.step, self._folder),
            )
            record = CommitRecord()
        return choose(
            self._folder / "checkpoints",
            self._fingerprint,
            self._options.accept_data,
            self._note_skip,
            record,
            self._options.accept_older_checkpoint,
            self._note_lost,
        )

    def _note_lost(self, lost: LostCheckpointError) -> None:
        log.warning("accepted: %s", lost.what)
        self._journal.note(
            "lost_checkpoint", step=lost.record.step, restored=lost.restored_step, reason=lost.what
        )

    def _note_skip(self, skipped: SkippedCheckpoint) -> None:
        self._journal.note("skip_checkpoint", path=str(skipped.path), reason=skipped.reason)


def note_commit(
    folder: Path, journal: Journal, manifest: Manifest, seconds: float, size: int
) -> None:
    """Record a committed checkpoint in the journal, and in the run's ledger of samples."""
    journal.note("checkpoint", step=manifest.step, seconds=round(seconds, 3), bytes=size)
    # The ledger needs what a journal provides: one write per line, torn lines skipped by readers.
    with contextlib.closing(Journal(folder / LEDGER_FILE)) as commits:
        commits.note(
            "commit",
            step=manifest.step,
            generation=manifest.generation,
            samples=manifest.extra["samples"],
            digest=manifest.extra["digest"],
        )
