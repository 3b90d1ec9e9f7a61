"""The content of a file at its source, and the checksum that the store has for it."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from everstep.errors import EverstepError
from everstep.staging.entry import Entry


class FileError(EverstepError):
    """One file cannot be copied; the others can."""


class ChangedError(FileError):
    """A file changed after it was listed, or while it was copied."""

    def __init__(self, name: str, problem: str = "changed while it was copied") -> None:
        super().__init__(
            f"{name} {problem}", "Run the command again when nothing writes to the source."
        )


class BrokenContentError(Exception):
    """The content ended early or does not have its checksum; another attempt may succeed."""


class Checksum(NamedTuple):
    """The checksum that a store has for the content of a file.

    Attributes:
        value: hexadecimal digest; for a multipart upload, followed by `-` and the number of parts.
        part_bytes: part size of a multipart upload; 0 for the MD5 of the whole content.
    """

    value: str
    part_bytes: int = 0


class Content(NamedTuple):
    """The opened content of a file.

    Attributes:
        chunks: its bytes from the requested offset.
        checksum: the store's checksum of the whole content, if it has one.
    """

    chunks: Iterator[bytes]
    checksum: Checksum | None = None


class Source(Protocol):
    """Source of files."""

    @property
    def name(self) -> str:
        """The source as a user writes it."""

    def entries(self) -> Iterator[Entry]:
        """Yield all files, in any order.

        Raises:
            EverstepError: the source is missing, forbidden or has a file that must not be copied.
        """

    def open(self, entry: Entry, offset: int) -> AbstractContextManager[Content]:
        """Open the content of a file at an offset; the end of the block checks that the file did not change.

        Raises:
            FileError: the file changed, is missing or forbidden.
            BrokenContentError: the connection broke.
            OSError: the source cannot be read.
        """


class Digest:
    """The SHA-256 of a file, whose content is verified against the store's MD5 or ETag."""

    def __init__(self, checksum: Checksum | None) -> None:
        self._sha256 = hashlib.sha256()
        self._checksum = checksum
        part_bytes = checksum.part_bytes if checksum else 0
        self._store_digest = PartsMd5(part_bytes) if part_bytes else _md5() if checksum else None

    def update(self, chunk: bytes) -> None:
        """Add bytes."""
        self._sha256.update(chunk)
        if self._store_digest:
            self._store_digest.update(chunk)

    def hexdigest(self) -> str:
        """Return the SHA-256 in hexadecimal.

        Raises:
            BrokenContentError: the content does not have the store's checksum.
        """
        if self._checksum and self._store_digest:
            actual = self._store_digest.hexdigest()
            if actual != self._checksum.value:
                raise BrokenContentError(
                    f"has the checksum {actual}; the store's is {self._checksum.value}"
                )
        return self._sha256.hexdigest()


class PartsMd5:
    """The ETag of an S3 object that was uploaded in parts: MD5 of the MD5s of its parts."""

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes, self._filled = part_bytes, 0
        self._part, self._digests = _md5(), list[bytes]()

    def update(self, chunk: bytes) -> None:
        """Add bytes."""
        view = memoryview(chunk)
        while view:
            head = view[: self._part_bytes - self._filled]
            self._part.update(head)
            self._filled += len(head)
            view = view[len(head) :]
            if self._filled == self._part_bytes:
                self._end_part()

    def hexdigest(self) -> str:
        """Return the ETag without quotes."""
        if self._filled:
            self._end_part()
        combined = _md5(b"".join(self._digests))
        return f"{combined.hexdigest()}-{len(self._digests)}"

    def _end_part(self) -> None:
        self._digests.append(self._part.digest())
        self._part, self._filled = _md5(), 0


def _md5(data: bytes = b"") -> "hashlib._Hash":
    return hashlib.md5(data, usedforsecurity=False)


OnBytes = Callable[[int], None]
"""Function that is called with the number of bytes that were copied."""
