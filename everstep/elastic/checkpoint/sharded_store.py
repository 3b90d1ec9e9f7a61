"""Checkpoints of a model in shards, in a folder: one state file for each worker of the node that writes them.

    step-XXXXXXXX/state-K-of-N.safetensors   shard K of the state
    step-XXXXXXXX/state-K-of-N.json          its manifest, written once the shard is durable; only the writers read it
    step-XXXXXXXX/manifest.json              the manifest, with size, checksum and small values of each shard

All workers of the node write into one staging folder. Each of them writes its shard, syncs it, and then writes the
manifest of its shard. The first one waits for the manifests of all shards, writes the manifest of the checkpoint,
commits and renames as in `files`. So a worker that ends at any moment leaves a folder without a manifest, or a
complete one.

The workers agree on each snapshot when it is taken, and name it (`SnapshotName`). The name is part of the folder's name
and of each manifest: shards of different snapshots never meet. A worker writes its snapshots in order, but a newer
snapshot may replace a waiting one on one worker and not on another. So a shard may never be written. The first worker
recognizes that by a later snapshot's file of that worker, by its note of a failure, by a new process in the
worker's place, or by the lack of progress.

Why files and not messages: a write outlives the group in which it began.
"""

import contextlib
import errno
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from everstep.elastic.checkpoint import files
from everstep.elastic.checkpoint.disk import DISK, Disk
from everstep.elastic.checkpoint.files import (
    Checkpoint,
    Manifest,
    ShardFile,
    folder_name,
    shard_file,
    shard_label,
)
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.state_format import Tensors

POLL_SECONDS = 0.05
_SNAPSHOT = re.compile(r"([0-9a-f]{8})-(\d+)-g(\d+)$")


@dataclass(frozen=True)
class SnapshotName:
    """Name of a snapshot, equal on all workers of the node that have taken it.

    Attributes:
        node: the node's worker processes; another text once one of them is replaced.
        number: number of the snapshot; it grows.
        agreed_generation: generation that last agreed on the state.
    """

    node: str
    number: int
    agreed_generation: int

    def __str__(self) -> str:
        """Return the name as text."""
        return f"{self.node}-{self.number:06d}-g{self.agreed_generation:08d}"

    @classmethod
    def parse(cls, text: str) -> "SnapshotName | None":
        """Return the name at the end of a text, None if there is none."""
        match = _SNAPSHOT.search(text)
        return cls(match[1], int(match[2]), int(match[3])) if match else None


@dataclass(frozen=True)
class Sharding:
    """This worker's shard of the model.

    Attributes:
        number: number of the shard: the local rank.
        count: number of shards: the workers of a node.
        node: function that returns the present text for the node's worker processes (see `SnapshotName`).
    """

    number: int
    count: int
    node: Callable[[], str]

    @property
    def leads(self) -> bool:
        """True for the worker that writes manifests and commits."""
        return self.number == 0


class ShardedFolderStore(FolderStore):
    """A folder with the checkpoints of a model in shards, as one worker accesses it.

    Args:
        folder: folder of the checkpoints.
        sharding: this worker's shard.
        timeout_seconds: time without progress of another shard after which its write counts as hung.
        disk: file system of the folder.
    """

    def __init__(
        self,
        folder: Path,
        sharding: Sharding,
        timeout_seconds: float = 300.0,
        disk: Disk = DISK,
    ) -> None:
        super().__init__(folder, disk)
        self._sharding, self._timeout_seconds = sharding, timeout_seconds

    def check(self, name: str) -> Checkpoint:
        """Verify every byte of a checkpoint with all its shards, and return this worker's part.

        Raises:
            ValueError: the checkpoint is torn, damaged, misnamed or of another format; the message has the details.
        """
        return self._own_part(super().check(name))

    def check_own(self, step: int, generation: int) -> Checkpoint:
        """Verify this worker's shard of the checkpoint that the node's first worker has verified, and return it.

        Raises:
            ValueError: the shard is damaged, or the checkpoint is another one.
        """
        number, count = self._sharding.number, self._sharding.count
        path = self._folder / folder_name(step)
        manifest = files.read_manifest(path, self._disk)
        if (manifest.step, manifest.generation, len(manifest.shards)) != (step, generation, count):
            raise ValueError("it was replaced by another checkpoint")
        files.check_file(
            path / shard_file(number, count),
            shard_label(number, count),
            manifest.shards[number],
            self._disk,
        )
        return self._own_part(Checkpoint(path, manifest))

    def _own_part(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return a checkpoint with this worker's file and small values; one of another number of shards as it is."""
        number, count = self._sharding.number, self._sharding.count
        shards = checkpoint.manifest.shards
        if len(shards) != count:  # the fingerprint differs, too
            return checkpoint
        manifest = replace(checkpoint.manifest, extra=shards[number].extra)
        return Checkpoint(checkpoint.path, manifest, shard_file(number, count))

    def write(
        self, state: Tensors, manifest: Manifest, *, commit: Callable[[Manifest], bool], keep: int
    ) -> int:
        """Write this worker's shard durably; the first worker then completes the checkpoint.

        Returns:
            The size in bytes: of all shards on the first worker, of its own shard on another.

        Raises:
            FencedError: `commit` has refused it.
            OSError: the disk is full or gone, or another worker has not written its shard; older checkpoints remain.
            EverstepError: a tensor has a type that cannot be saved.
        """
        staging = self._folder / f".{folder_name(manifest.step)}-{manifest.snapshot}"
        try:
            own_shard = self._write_shard(staging, state, manifest)
            if not self._sharding.leads:
                return own_shard.bytes
            shards = (own_shard, *self._other_shards(staging, manifest))
            size = sum(shard.bytes for shard in shards)
            complete_manifest = replace(manifest, shards=shards)
            files.write_manifest(staging, complete_manifest, size, 0, self._disk)
        except Exception as error:
            self._abandon(staging, error)
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, str(self._folder)) from error
            raise
        files.publish(
            Checkpoint(staging, complete_manifest), commit=commit, keep=keep, disk=self._disk
        )
        return size

    def _write_shard(self, staging: Path, state: Tensors, manifest: Manifest) -> ShardFile:
        """Write this worker's shard durably, then the manifest that tells the first worker so."""
        number, count = self._sharding.number, self._sharding.count
        self._disk.make_folder(staging)
        size, checksum = files.write_state(staging / shard_file(number, count), state, self._disk)
        if not self._sharding.leads:
            with self._disk.create(staging / _written_file(number, count)) as file:
                file.write(files.manifest_content(manifest, size, checksum))
        return ShardFile(size, checksum, manifest.extra)

    def _abandon(self, staging: Path, error: Exception) -> None:
        """Remove the folder on the first worker; on another, inform the first one."""
        if self._sharding.leads:
            self._disk.remove(staging)
            return
        number, count = self._sharding.number, self._sharding.count
        with (
            contextlib.suppress(OSError),  # the first worker notices the lack of progress
            self._disk.create(staging / _failed_file(number, count)) as file,
        ):
            file.write(str(error).encode())

    # --- the first worker's wait for the others ---

    def _other_shards(self, staging: Path, manifest: Manifest) -> list[ShardFile]:
        """Return the shards of all other workers once they are durable.

        Raises:
            OSError: one of them will not be written.
        """
        return [
            self._await_shard(staging, manifest, number)
            for number in range(1, self._sharding.count)
        ]

    def _await_shard(self, staging: Path, manifest: Manifest, number: int) -> ShardFile:
        """Return a shard once it is durable.

        Raises:
            OSError: it will not be written.
        """
        path = staging / shard_file(number, self._sharding.count)
        size, progressed_at = -1, time.monotonic()
        while True:
            # Before the file is looked for: it may appear just before its worker ends or continues.
            obstacle = self._obstacle(staging, manifest, number)
            if shard := self._written_shard(staging, manifest, number):
                return shard
            if (current_size := self._disk.size(path)) != size:
                size, progressed_at = current_size, time.monotonic()
            elif time.monotonic() - progressed_at >= self._timeout_seconds:
                obstacle = f"there was no progress for {self._timeout_seconds:.0f} s"
            if obstacle:
                label = shard_label(number, self._sharding.count)
                raise OSError(errno.EIO, f"{label} is not written: {obstacle}", str(path))
            time.sleep(POLL_SECONDS)

    def _written_shard(self, staging: Path, manifest: Manifest, number: int) -> ShardFile | None:
        """Return a shard of this snapshot if it is durable."""
        try:
            content = b"".join(
                self._disk.read(staging / _written_file(number, self._sharding.count))
            )
            written = files.parse_manifest(content)
        except (FileNotFoundError, ValueError):  # not there yet, or not complete
            return None
        if _identity(written) != _identity(manifest):
            return None
        return ShardFile(written.bytes, written.checksum, written.extra)

    def _obstacle(self, staging: Path, manifest: Manifest, number: int) -> str:
        """Return the reason why a shard that is not there yet will not be written; empty if it may be."""
        count = self._sharding.count
        with contextlib.suppress(FileNotFoundError):
            content = b"".join(self._disk.read(staging / _failed_file(number, count)))
            return content.decode(errors="replace") or "its worker failed to write it"
        own_name = SnapshotName.parse(manifest.snapshot)
        assert own_name is not None  # noqa: S101 - a model in shards has named snapshots
        if own_name.node != self._sharding.node():
            return "a worker of this node was replaced"
        if not self._disk.exists(staging):  # by the writer of a later checkpoint
            return "its folder was removed"
        for name in self._disk.names(self._folder):
            later_name = SnapshotName.parse(name)
            if (
                later_name
                and later_name.node == own_name.node
                and later_name.number > own_name.number
                and self._disk.exists(self._folder / name / shard_file(number, count))
            ):
                return "its worker has begun a later one"
        return ""


def _written_file(number: int, count: int) -> str:
    """Return the name of the file that tells the first worker that a shard is durable."""
    return f"state-{number}-of-{count}.json"


def _failed_file(number: int, count: int) -> str:
    """Return the name of the file that tells the first worker that a shard could not be written."""
    return f"state-{number}-of-{count}.failed"


def _identity(manifest: Manifest) -> tuple[object, ...]:
    """Return what the manifests of all shards of a snapshot have in common."""
    return manifest.snapshot, manifest.step, manifest.generation
