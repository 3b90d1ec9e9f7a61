"""Storage of a run's checkpoints, record and sample ledger, in a folder or in a bucket."""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from everstep.elastic.accounting.journal import Journal
from everstep.elastic.checkpoint.bucket import Bucket, MissingObjectError
from everstep.elastic.checkpoint.bucket_store import BucketStore
from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.sharded_store import ShardedFolderStore, Sharding
from everstep.elastic.checkpoint.store import CheckpointStore
from everstep.elastic.training import run_record
from everstep.elastic.training.run_record import RUN_FILE, new_record, with_samples
from everstep.errors import EverstepError

LEDGER_FILE = "ledger.jsonl"


class RunStorage(Protocol):
    """Storage of a run's checkpoints, record and ledger."""

    @property
    def location(self) -> str:
        """Its path or address, for messages."""

    @property
    def name(self) -> str:
        """Name of the run: the last part of its path or address."""

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints."""

    def open(self, samples: int, fingerprint: Mapping[str, Any]) -> None:
        """Write the record of a new run; keep the record of a run that continues.

        Args:
            samples: size of the data set, in samples.
            fingerprint: settings that must be equal to continue the run.

        Raises:
            EverstepError: the folder cannot be written, or the bucket denies access.
            BucketError: the bucket does not respond.
        """

    def run_id(self) -> str:
        """Return the identity of the run; empty if this storage has no record of it."""

    def note_samples(self, step: int, samples: int, generation: int) -> None:
        """Record the size of the data set for the steps after `step`, if it has changed.

        Args:
            step: completed steps of the restored state.
            samples: size of the data set.
            generation: generation that restores the state; 0 if it has no agent.
        """

    def note_commit(self, manifest: Manifest) -> None:
        """Record a committed checkpoint in the ledger of samples."""


class FolderStorage:
    """A folder that all workers share.

    Args:
        folder: folder of the run.
        sharding: this worker's shard of the model; None if it has the whole model.
        timeout_seconds: time without progress of another worker's shard after which its write counts as hung.
    """

    def __init__(
        self, folder: Path, sharding: Sharding | None = None, timeout_seconds: float = 300.0
    ) -> None:
        self._folder, self.location, self.name = folder, str(folder), folder.name
        checkpoints = folder / "checkpoints"
        self.checkpoints = (
            ShardedFolderStore(checkpoints, sharding, timeout_seconds)
            if sharding
            else FolderStore(checkpoints)
        )

    def open(self, samples: int, fingerprint: Mapping[str, Any]) -> None:
        """Write the record of a new run; keep the record of a run that continues."""
        run_record.open_record(self._folder, samples, fingerprint)

    def run_id(self) -> str:
        """Return the identity of the run; empty if this storage has no record of it."""
        return run_record.run_id(self._folder)

    def note_samples(self, step: int, samples: int, generation: int) -> None:
        """Record the size of the data set, in samples, for the steps after `step`, if it has changed."""
        run_record.note_samples(self._folder, step, samples, generation)

    def note_commit(self, manifest: Manifest) -> None:
        """Append a line to the ledger, in one write; readers skip a torn line, as in a journal."""
        with contextlib.closing(Journal(self._folder / LEDGER_FILE)) as ledger:
            ledger.note("commit", **_ledger_entry(manifest))


class BucketStorage:
    """A bucket of an object store. The record is `run.json`; the ledger has an object for each commit.

    Args:
        bucket: bucket, below the prefix of the run.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket, self.location = bucket, bucket.url
        self.name = bucket.url.rpartition("/")[2]
        self.checkpoints = BucketStore(bucket)
        self._id = ""

    def open(self, samples: int, fingerprint: Mapping[str, Any]) -> None:
        """Write the record of a run that begins; if several workers write it, the first one wins."""
        self._bucket.put_if(RUN_FILE, _json(new_record(samples, fingerprint)), version=None)

    def run_id(self) -> str:
        """Return the identity of the run; empty if this storage has no record of it. It never changes."""
        with contextlib.suppress(MissingObjectError, ValueError):
            self._id = self._id or str(self._record()[0].get("id", ""))
        return self._id

    def note_samples(self, step: int, samples: int, generation: int) -> None:
        """Record the size of the data set, in samples, for the steps after `step`, if it has changed."""
        while True:
            record, version = self._record()
            updated_record = with_samples(record, step, samples, generation)
            if updated_record == record:
                return
            if self._bucket.put_if(RUN_FILE, _json(updated_record), version):
                return

    def note_commit(self, manifest: Manifest) -> None:
        """Write an entry of the ledger; a repeated entry has the same key and content."""
        entry = _ledger_entry(manifest)
        key = f"ledger/{manifest.step:08d}-g{manifest.generation:08d}.json"
        self._bucket.put(key, _json(entry))

    def _record(self) -> tuple[dict[str, Any], str]:
        content, version = self._bucket.get(RUN_FILE)
        return dict(json.loads(content)), version


def storage_at(
    checkpoint: str | os.PathLike[str] | None,
    sharding: Sharding | None = None,
    timeout_seconds: float = 300.0,
) -> tuple[Path | None, RunStorage | None]:
    """Return the local folder of a run, None for a bucket, and its storage; both are None without a checkpoint.

    Args:
        checkpoint: folder or address of the run.
        sharding: this worker's shard of the model; None if it has the whole model.
        timeout_seconds: time without progress of another worker's shard after which its write counts as hung.

    Raises:
        EverstepError: the address or the configuration of boto3 is not valid, or boto3 is not installed.
        BucketError: the service that issues this pod's credentials does not respond.
    """
    if checkpoint is None:
        return None, None
    if "://" in (address := os.fspath(checkpoint)):
        if sharding:
            raise EverstepError(
                f"the checkpoints of a model in shards cannot be in a bucket ({address}): all workers of a node "
                "write into one folder, which is renamed",
                "Pass a folder that all nodes share.",
            )
        # Imported only here: the trainer's image, which uses a folder, lacks `everstep.optional_packages`.
        from everstep.elastic.checkpoint.s3_bucket import bucket_at

        return None, BucketStorage(bucket_at(address))
    folder = Path(checkpoint)
    return folder, FolderStorage(folder, sharding, timeout_seconds)


def _ledger_entry(manifest: Manifest) -> dict[str, Any]:
    return {
        "step": manifest.step,
        "generation": manifest.generation,
        "samples": manifest.extra["samples"],
        "digest": manifest.extra["digest"],
    }


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, indent=1).encode()
