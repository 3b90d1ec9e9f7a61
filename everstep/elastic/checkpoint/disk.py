"""File operations of the checkpoint code, whose order determines which files survive a crash.

The tests replace `Disk` with a disk that loses all unsynced data at a simulated power failure.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

BLOCK_BYTES = 1 << 20


class OutputFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Append bytes; they may be lost until `sync` has returned."""

    def sync(self) -> None:
        """Make the content durable. The file's name is durable once its folder is synced."""


class Disk:
    """The real file system.

    Attributes:
        responded_at: monotonic time in seconds at which it last responded to this process; 0 before that.
    """

    responded_at = 0.0

    def note_response(self) -> None:
        """Record that the disk has responded, which a hung disk does not."""
        self.responded_at = time.monotonic()

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder; none if the folder does not exist."""
        try:
            return os.listdir(folder)  # noqa: PTH208 - names, not paths
        except FileNotFoundError:
            return []
        finally:
            self.note_response()

    def exists(self, path: Path) -> bool:
        """Return True if a file or folder has this name."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes; -1 if it does not exist."""
        try:
            return path.stat().st_size
        except FileNotFoundError:
            return -1

    def make_folder(self, path: Path) -> None:
        """Create a folder; create missing parents and make their names durable."""
        if not path.parent.exists():
            self.make_folder(path.parent)
            self.sync_folder(path.parent.parent)
        path.mkdir(exist_ok=True)

    @contextmanager
    def create(self, path: Path) -> Iterator[OutputFile]:
        """Create a file for writing."""
        with path.open("wb") as file:
            yield _RealFile(file, self.note_response)

    def read(self, path: Path) -> Iterator[bytes]:
        """Yield the content of a file in blocks."""
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                self.note_response()
                yield block

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder durable."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self.note_response()

    def sync_parents(self, folder: Path) -> None:
        """Make the names of a folder and its parents durable: the process that created them may not have done so yet.

        It ends at the root of the volume, or at a folder that this process may not read, and has not created.
        """
        for parent in folder.absolute().parents:
            try:
                self.sync_folder(parent)
            except PermissionError:
                return
            if self.is_mount(parent):
                return

    def is_mount(self, path: Path) -> bool:
        """Return True if a folder is the root of a volume."""
        return path.is_mount()

    def rename(self, old: Path, new: Path) -> None:
        """Rename a folder.

        Raises:
            FileNotFoundError: `old` does not exist.
            OSError: `new` exists and is not empty (ENOTEMPTY, EEXIST), or the disk failed.
        """
        old.rename(new)
        self.note_response()

    def remove(self, folder: Path) -> None:
        """Remove a folder with its content; ignore errors of the disk."""
        shutil.rmtree(folder, ignore_errors=True)


class _RealFile:
    def __init__(self, file: BinaryIO, note_response: Callable[[], None]) -> None:
        self._file, self._note_response = file, note_response

    def write(self, data: bytes | memoryview, /) -> object:
        byte_count = self._file.write(data)
        self._note_response()
        return byte_count

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._note_response()


DISK = Disk()
