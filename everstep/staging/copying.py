"""Copy of one file: it is written under a temporary name, synced, checked and renamed.

Large files are synced from time to time, and the synced length is noted, so that a later process continues there.
"""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from everstep.staging import spool
from everstep.staging.content import (
    BrokenContentError,
    ChangedError,
    Digest,
    FileError,
    OnBytes,
    Source,
)
from everstep.staging.entry import Entry, Record
from everstep.staging.plan import Task

CHUNK_BYTES = 1 << 20
SYNC_BYTES = 128 << 20
"""Bytes of a large file after which it is synced and can be continued."""

ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.5


class Partial(NamedTuple):
    """Path of an incomplete file, and of the note with its synced length."""

    data: Path
    length: Path

    def synced_bytes(self) -> int:
        """Return the number of bytes that are durable."""
        try:
            return min(int(self.length.read_text()), self.data.stat().st_size)
        except (OSError, ValueError):
            return 0

    def discard(self) -> None:
        """Remove both files."""
        self.length.unlink(missing_ok=True)
        self.data.unlink(missing_ok=True)


def partial_of(entry: Entry, folder: Path) -> Partial:
    """Return the incomplete file of an entry; its name depends on the version, so versions are never mixed."""
    identity = f"{entry.name}\0{entry.size}\0{entry.version}".encode("utf-8", "surrogateescape")
    name = hashlib.blake2b(identity, digest_size=16).hexdigest()
    return Partial(folder / name, folder / f"{name}.length")


def discard_other_partials(tasks: Iterator[Task], folder: Path) -> Iterator[Task]:
    """Yield all tasks, then remove the incomplete files that belong to no task."""
    others = {path.stem for path in folder.iterdir()}
    for task in tasks:
        if others:
            others.discard(partial_of(task.entry, folder).data.name)
        yield task
    for name in others:
        Partial(folder / name, folder / f"{name}.length").discard()


def copy(
    source: Source,
    entry: Entry,
    target: Path,
    partials: Path,
    on_bytes: OnBytes,
    attempts: int = ATTEMPTS,
) -> Record:
    """Copy a file so that it appears at its target completely or not at all.

    Args:
        source: source of the file.
        entry: the file.
        target: path of the file at the destination.
        partials: folder of incomplete files, on the volume of the target.
        on_bytes: function that is called with the size of each chunk, and with a negative size if an attempt fails.
        attempts: maximum number of attempts if the connection breaks or a checksum differs.

    Raises:
        FileError: the file changed, is missing, forbidden or damaged.
        OSError: the source cannot be read or the destination cannot be written.
    """
    partial = partial_of(entry, partials)
    for attempt in range(1, attempts + 1):
        try:
            digest = _write(source, entry, partial, on_bytes)
            break
        except BrokenContentError as error:
            if attempt == attempts:
                fix = "Compare the file with its original, then run the command again."
                raise FileError(f"{entry.name} {error}, {attempts} times", fix) from None
            time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
        except ChangedError:
            partial.discard()
            raise
    _move_to_target(partial, target)
    return Record(entry.name, entry.size, entry.version, digest)


def _write(source: Source, entry: Entry, partial: Partial, on_bytes: OnBytes) -> str:
    """Write the content to the incomplete file, sync it, and return its SHA-256."""
    offset = max(min(partial.synced_bytes(), entry.size - 1), 0)  # stores refuse an empty range
    byte_count = 0
    try:
        with source.open(entry, offset) as content, _open_for_update(partial.data) as file:
            digest = Digest(content.checksum)
            for chunk in _synced_chunks(file, offset):
                digest.update(chunk)
            on_bytes(offset)
            byte_count = offset
            for chunk in content.chunks:
                file.write(chunk)
                byte_count += len(chunk)
                digest.update(chunk)
                on_bytes(len(chunk))
                if byte_count // SYNC_BYTES > (byte_count - len(chunk)) // SYNC_BYTES:
                    _note_length(file, partial, byte_count)
            sha256 = _verified_sha256(digest, byte_count, entry, partial)
            spool.sync(file)
    except BaseException:
        on_bytes(-byte_count)
        raise
    return sha256


def _verified_sha256(digest: Digest, byte_count: int, entry: Entry, partial: Partial) -> str:
    """Return the SHA-256; discard the incomplete file if it cannot become the listed one."""
    if byte_count < entry.size:
        raise BrokenContentError(f"ended after {byte_count:,} of {entry.size:,} bytes")
    try:
        if byte_count > entry.size:
            raise BrokenContentError(f"has more than its {entry.size:,} bytes")
        return digest.hexdigest()
    except BrokenContentError:
        partial.discard()
        raise


def _move_to_target(partial: Partial, target: Path) -> None:
    """Rename a complete file to its target."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.data.replace(target)
    except (FileExistsError, IsADirectoryError, NotADirectoryError):
        raise FileError(
            f"{target} cannot be written: {_obstacle(target)}",
            "Move it elsewhere, then run the command again.",
        ) from None
    partial.length.unlink(missing_ok=True)


def _obstacle(target: Path) -> str:
    """Return the obstacle at a file's path: a folder there, or a file at the path of one of its parent folders."""
    if target.is_dir():
        return f"{target} is a folder"
    parent = next(path for path in target.parents if os.path.lexists(path))
    return f"{parent} is not a folder"


@contextlib.contextmanager
def _open_for_update(path: Path) -> Iterator[IO[bytes]]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+b") as file:
        yield file


def _synced_chunks(file: IO[bytes], length: int) -> Iterator[bytes]:
    """Truncate a file after its durable bytes and yield them; the position is then the end of the file."""
    file.truncate(length)
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _note_length(file: IO[bytes], partial: Partial, length: int) -> None:
    spool.sync(file)
    partial.length.write_text(str(length))


def sha256_and_md5(path: Path) -> tuple[str, str]:
    """Return the SHA-256 and the MD5 of a file in hexadecimal."""
    sha256, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            sha256.update(chunk)
            md5.update(chunk)
    return sha256.hexdigest(), md5.hexdigest()
