"""The folder of a cache on a node: shards of one data set, complete or absent.

    ROOT/lock                 held by the process that downloads
    ROOT/DIGEST/              a data set, named after its manifest
        manifest.json, train-index.npy, ...
        train-00000.jpegs     a complete shard
        train-00001.jpegs.partial

A shard is written under a temporary name, verified against the index and renamed, so that a process sees all
of it or nothing. It is not synced: after a power cut its checksums differ, and it is downloaded again.
"""

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from everstep.errors import EverstepError
from everstep.staging.sources.objects import Objects, read_with_retries
from trainer.data.cache.plan import CacheLimits, CacheState, OtherData, limit_to_disk
from trainer.data.dataset import SPLITS
from trainer.data.manifest import MANIFEST_FILE
from trainer.data.shards import KIND, SHARD_SUFFIX, Index, check_format

CONNECTIONS = 8  # requests of a download at a time
PIECE_BYTES = 8 << 20
PARTIAL_SUFFIX = ".partial"
LOCK = "lock"
MAX_DAMAGED_DOWNLOADS = 3
"""Downloads of one shard or image; if all are damaged, the object itself is."""


class DamagedShardError(Exception):
    """A downloaded shard does not have the checksums of its index."""


class ShardFile(NamedTuple):
    """One shard of the data set.

    Attributes:
        name: name of the file.
        bytes: its size.
        split: split of its images.
        number: number of the shard in its split.
    """

    name: str
    bytes: int
    split: str
    number: int


@dataclass(frozen=True)
class CacheFolder:
    """The shards of one data set on a node.

    Attributes:
        folder: its folder.
        manifest: its manifest.
    """

    folder: Path
    manifest: Mapping[str, Any]

    @cached_property
    def files(self) -> list[ShardFile]:
        """All shards, by number."""
        return [
            ShardFile(name, size, split, number)
            for split in SPLITS
            for number, (name, size) in enumerate(
                zip(
                    self.manifest["parts"][split]["files"],
                    self.manifest["parts"][split]["bytes"],
                    strict=True,
                )
            )
        ]

    def index(self, split: str) -> Index:
        """Return the index of a split, mapped: the processes of a node share its memory."""
        path = self.folder / self.manifest["parts"][split]["index"]
        index: Index = np.load(path, mmap_mode="r")
        return index

    def state(self, limits: CacheLimits) -> CacheState:
        """Return the current state of the cache; its limit is the lower of the size limit and the disk's limit."""
        complete_shards = (
            number
            for number, file in enumerate(self.files)
            if _size_of(self.folder / file.name) == file.bytes
        )
        state = CacheState(
            sizes=[file.bytes for file in self.files],
            complete_shards=frozenset(complete_shards),
            other_data=self._other_data(),
            limit=limits.bytes or None,
        )
        if not limits.free_percent:
            return state
        return limit_to_disk(state, self._free_space(limits.free_percent))

    def download(self, number: int, objects: Objects) -> None:
        """Download one shard; it appears once it is verified.

        Raises:
            EverstepError: the store has no such object, denies access, or does not respond.
            DamagedShardError: the bytes do not have their checksums.
            OSError: the shard cannot be written.
        """
        name, size, split, shard = self.files[number]
        partial = self.folder / f"{name}{PARTIAL_SUFFIX}"
        try:
            with partial.open("wb+") as file:
                os.truncate(file.fileno(), size)
                _fill(file.fileno(), name, size, objects)
                index = self.index(split)
                _verify(file.fileno(), name, index[index["shard"] == shard])
            partial.rename(self.folder / name)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def remove_partial(self) -> None:
        """Remove the leftovers of a dead process; the caller must hold the lock."""
        for path in self.folder.glob(f"*{PARTIAL_SUFFIX}"):
            path.unlink(missing_ok=True)

    def evict(self, names: Sequence[str]) -> None:
        """Remove the shards of other data sets.

        Their manifests and indexes stay: another run on this node may still open them, and then reads from the store. A
        process that has mapped a shard can still read it.
        """
        for name in names:
            for path in _shards_in(self.folder.parent / name):
                path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Wait until no other process of the node downloads; the lock ends with the process."""
        with (self.folder.parent / LOCK).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _free_space(self, free_percent: int) -> int:
        """Return the bytes that may still be written to the disk; negative if it is too full."""
        disk = os.statvfs(self.folder)
        return (disk.f_bavail - disk.f_blocks * free_percent // 100) * disk.f_frsize

    def _other_data(self) -> list[OtherData]:
        """Return the other data sets of which the cache has shards, the least recently used first."""
        entries = []
        for folder in self.folder.parent.iterdir():
            if folder.is_dir() and folder != self.folder and (shards := _shards_in(folder)):
                size = sum(max(0, _size_of(path)) for path in shards)
                entries.append((folder.stat().st_mtime, OtherData(folder.name, size)))
        return [other for _, other in sorted(entries, key=lambda entry: entry[0])]


def open_cache_folder(root: Path, objects: Objects) -> CacheFolder:
    """Return the folder of the data set that the store has now; fetch its manifest and indexes.

    Raises:
        EverstepError: the store has no shards of this format, denies access or does not respond, an index is damaged,
            or the folder cannot be written.
    """
    content = read_with_retries(lambda: objects.read(MANIFEST_FILE), objects.name)
    manifest = _parse_manifest(content, objects.name)
    folder = root / hashlib.sha256(content).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for split in SPLITS:
            entry = manifest["parts"][split]
            _fetch_index(folder / entry["index"], entry["index_sha256"], objects)
        _write(folder / MANIFEST_FILE, content)
        os.utime(folder)  # the time of its last use
    except OSError as error:
        raise EverstepError(
            f"the cache {root} cannot be written: {error.strerror}",
            "Choose a folder on a disk of the node with room for the indexes of the shards.",
        ) from error
    return CacheFolder(folder, manifest)


def _parse_manifest(content: bytes, name: str) -> Mapping[str, Any]:
    """Return a manifest of shards.

    Raises:
        EverstepError: the content is not such a manifest, or the shards have another format.
    """
    try:
        manifest = json.loads(content)
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise _no_manifest(name)
    check_format(manifest, name)
    if set(SPLITS) - set(manifest.get("parts", ())):
        raise _no_manifest(name)
    return manifest


def _no_manifest(name: str) -> EverstepError:
    return EverstepError(
        f"{name}/{MANIFEST_FILE} is not a manifest of shards",
        "Copy a folder written by `python3 -m trainer.prepare` to this address.",
    )


def _fetch_index(path: Path, sha256: str, objects: Objects) -> None:
    """Fetch an index unless the folder has it.

    Raises:
        EverstepError: the store does not provide it, or its checksum differs from the manifest's.
    """
    with contextlib.suppress(OSError):
        if hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return
    content = read_with_retries(lambda: objects.read(path.name), objects.name)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise EverstepError(
            f"the checksum of {objects.name}/{path.name} differs from the manifest's",
            "Copy the whole folder of shards again, to its own prefix.",
        )
    _write(path, content)


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically; several processes may write the same content."""
    # Not the suffix of partial shards, which the process that holds the lock removes.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.writing")
    temporary.write_bytes(content)
    temporary.rename(path)


def _fill(file: int, name: str, size: int, objects: Objects) -> None:
    """Write the bytes of an object to a file of its size, several pieces at a time."""

    def copy(first: int) -> None:
        length = min(PIECE_BYTES, size - first)
        content = read_with_retries(lambda: objects.read(name, first, length), objects.name)
        written_bytes = 0
        while written_bytes < length:
            written_bytes += os.pwrite(file, content[written_bytes:], first + written_bytes)

    with ThreadPoolExecutor(CONNECTIONS, "everstep-download") as pool:
        pieces = [pool.submit(copy, first) for first in range(0, size, PIECE_BYTES)]
        try:
            for piece in pieces:
                piece.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _verify(file: int, name: str, records: Index) -> None:
    """Compare every image of a shard with its checksum.

    Raises:
        DamagedShardError: a checksum differs.
    """
    if not len(records):
        return  # an empty file cannot be mapped
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as content, memoryview(content) as view:
        for record in records:
            first = int(record["offset"])
            with view[first : first + int(record["bytes"])] as image:
                if zlib.crc32(image) != record["crc32"]:
                    raise DamagedShardError(f"the image at byte {first} of {name} is damaged")


def _shards_in(folder: Path) -> list[Path]:
    """Return the shards in a folder, incomplete ones too."""
    return list(folder.glob(f"*{SHARD_SUFFIX}*"))


def _size_of(path: Path) -> int:
    """Return the size of a file; -1 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return -1
