"""The checkpoint that a run continues from, which is never older than the committed one.

etcd has the record of the newest commit. A checkpoint is as new as that record if neither its generation
nor its step is lower. If no such checkpoint is valid, the run stops, and the error states the steps that would be
lost; a user may accept that loss.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from everstep.catalog.plurals import amount
from everstep.elastic.checkpoint.files import Manifest, step_of
from everstep.elastic.checkpoint.store import CheckpointStore, StoredCheckpoint
from everstep.errors import EverstepError

log = logging.getLogger(__name__)

VISIBILITY_SECONDS = 75.0
"""Time to wait for a committed checkpoint: an NFS client may list a folder from its cache for 60 s."""
POLL_SECONDS = 1.0
SHARDS = "shards"  # the fingerprint's name for the number of shards of the model; absent for a whole model


@dataclass(frozen=True)
class CommitRecord:
    """The newest commit of a run; generation 0 means that there is no record of a commit.

    Attributes:
        generation: generation in which the snapshot was taken.
        step: completed steps.
    """

    generation: int = 0
    step: int = 0

    def is_satisfied_by(self, manifest: Manifest) -> bool:
        """Return True if a checkpoint is at least as new as this commit."""
        return manifest.generation >= self.generation and manifest.step >= self.step


NO_COMMIT = CommitRecord()


@dataclass(frozen=True)
class SkippedCheckpoint:
    """A checkpoint that failed verification, and the reason."""

    name: str
    reason: str


class OtherRunError(EverstepError):
    """The store contains valid checkpoints of a run with other settings; `newest` is the newest of them."""

    def __init__(self, newest: StoredCheckpoint, message: str, fix: str) -> None:
        super().__init__(message, fix)
        self.newest = newest


class LostCheckpointError(EverstepError):
    """The committed checkpoint is damaged or missing.

    Attributes:
        record: record of the commit.
        older: the newest valid checkpoint, or None.
        missing: True if the checkpoint does not exist here; another machine may have written it just now.
    """

    def __init__(
        self,
        location: str,
        record: CommitRecord,
        older: StoredCheckpoint | None,
        reason: str | None,
    ) -> None:
        self.record, self.older, self.missing = record, older, reason is None
        step = older.manifest.step if older else 0
        alternative = (
            f"the newest valid one is of step {step}" if older else "there is no other valid one"
        )
        start = f"from step {step}" if older else "from the beginning"
        super().__init__(
            f"the committed checkpoint of step {record.step}, {location}, is "
            f"{f'damaged ({reason})' if reason else 'missing'}; {alternative}",
            "Restore it, or mount the right volume. Or continue without it: pass "
            f"--accept-older-checkpoint={record.step} (in a stack: job.acceptOlderCheckpoint; without our "
            f"trainer: Run(accept_older_checkpoint={record.step})); training then continues {start} and "
            f"repeats {amount(record.step - step, 'step')}.",
        )

    @property
    def restored_step(self) -> int:
        """The step from which the run continues if the loss is accepted."""
        return self.older.manifest.step if self.older else 0


def restore_point(
    store: CheckpointStore,
    settings: Mapping[str, Any],
    record: CommitRecord,
    *,
    accept_lost_step: int = 0,
    on_skip: Callable[[SkippedCheckpoint], None] = lambda _: None,
    on_lost: Callable[[LostCheckpointError], None] = lambda _: None,
    wait_seconds: float = VISIBILITY_SECONDS,
) -> StoredCheckpoint | None:
    """Return the checkpoint that a run continues from; None if it starts from the beginning.

    First, the committed checkpoint is made visible if its writer died before that. If it is missing, the
    function waits for it to appear.

    Args:
        store: store of the checkpoints.
        settings: settings that must be equal to the checkpoint's.
        record: record of the newest commit.
        accept_lost_step: committed step whose loss the user accepts; 0 for none.
        on_skip: called with every checkpoint that failed verification.
        on_lost: called with an accepted loss.
        wait_seconds: maximum time to wait for a missing checkpoint.

    Raises:
        LostCheckpointError: the committed checkpoint is damaged or missing, and its loss is not accepted.
        OtherRunError: there are valid checkpoints, but of a run with other settings.
    """
    skipped = dict[str, SkippedCheckpoint]()

    def find() -> StoredCheckpoint | None:
        if record.generation:
            store.place_committed(record.generation, record.step)
        return newest_checkpoint(
            store, settings, lambda skip: skipped.update({skip.name: skip}), record
        )

    try:
        return _wait_until_visible(find, wait_seconds)
    except LostCheckpointError as lost:
        if record.step != accept_lost_step:
            raise
        on_lost(lost)
        _hide_newer(store, lost.older)
        return lost.older
    finally:
        for skip in skipped.values():
            on_skip(skip)


def _wait_until_visible(
    find: Callable[[], StoredCheckpoint | None], seconds: float
) -> StoredCheckpoint | None:
    """Repeat `find` while the committed checkpoint is missing, for a bounded time."""
    deadline = time.monotonic() + seconds
    warned = False
    while True:
        try:
            return find()
        except LostCheckpointError as lost:
            if not lost.missing or time.monotonic() >= deadline:
                raise
            if not warned:
                log.warning("waiting up to %.0f s: %s", seconds, lost.problem)
                warned = True
        time.sleep(min(POLL_SECONDS, seconds))


def newest_checkpoint(
    store: CheckpointStore,
    settings: Mapping[str, Any],
    on_skip: Callable[[SkippedCheckpoint], None] | None = None,
    record: CommitRecord = NO_COMMIT,
) -> StoredCheckpoint | None:
    """Return the newest valid checkpoint of this run, or None if there is none.

    Raises:
        LostCheckpointError: no valid checkpoint is as new as the record of the newest commit.
        OtherRunError: there are valid checkpoints, but of a run with other settings.
    """
    # Keep only the newest of each kind: a checkpoint from a bucket is held in memory.
    older: StoredCheckpoint | None = None
    foreign: StoredCheckpoint | None = None
    reasons = dict[str, str]()
    for name in store.names():
        try:
            checkpoint = store.check(name)
        except ValueError as error:
            reasons[name] = str(error)
            if on_skip:
                on_skip(SkippedCheckpoint(name, str(error)))
            continue
        if checkpoint.manifest.fingerprint != dict(settings):
            foreign = foreign or checkpoint
        elif record.is_satisfied_by(checkpoint.manifest):
            return checkpoint
        else:
            older = older or checkpoint
        del checkpoint  # before the next one is read
    if foreign and not older:
        raise _other_run(foreign, settings)
    if record.generation:
        reason = next((text for n, text in reasons.items() if step_of(n) == record.step), None)
        location = store.location(record.step)
        raise LostCheckpointError(location, record, older, reason)
    return None


def _hide_newer(store: CheckpointStore, accepted: StoredCheckpoint | None) -> None:
    """Hide all checkpoints above an accepted step, so that none of them ever counts as newer again."""
    last_step = accepted.manifest.step if accepted else -1
    for name in store.names():
        if step_of(name) > last_step:
            store.hide(name)


def _other_run(checkpoint: StoredCheckpoint, settings: Mapping[str, Any]) -> OtherRunError:
    recorded = checkpoint.manifest.fingerprint
    if (count := recorded.get(SHARDS, 1)) != (own_count := settings.get(SHARDS, 1)):
        return OtherRunError(
            checkpoint,
            f"{checkpoint.location} has the model in {amount(count, 'shard')}, and this run has it in {own_count}",
            f"Start {amount(count, 'worker')} with one shard each on every node (--nproc-per-node {count}), as the run "
            "did that wrote it. Or give this run another folder (job.name in a stack): it starts from the beginning.",
        )
    names = sorted(set(recorded) | set(settings))
    differences = [
        f"{name} is {recorded.get(name)!r} there and {settings.get(name)!r} here"
        for name in names
        if recorded.get(name) != settings.get(name)
    ]
    return OtherRunError(
        checkpoint,
        f"{checkpoint.location} is a checkpoint of another run: {'; '.join(differences)}",
        "Restore the settings of that run. Or start again: pass --fresh=WORD with a new word, which moves that run "
        "away, or give this run another name (in a stack: job.name); without our trainer, another folder.",
    )
