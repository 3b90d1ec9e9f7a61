"""A folder as a source."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from everstep.errors import EverstepError
from everstep.staging.content import ChangedError, Content, FileError
from everstep.staging.copying import CHUNK_BYTES
from everstep.staging.entry import Entry, check_name, is_own_file


class FolderSource:
    """All regular files of a folder. Links and devices are refused: a copy would have other content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.name = str(folder)

    def entries(self) -> Iterator[Entry]:
        """Yield all files.

        Raises:
            EverstepError: a folder cannot be read, changes while it is listed, or contains a link or a device.
        """
        yield from self._entries_below("")

    def _entries_below(self, prefix: str) -> Iterator[Entry]:
        try:
            with os.scandir(self._folder / prefix) as listing:
                children = [(child.name, child.stat(follow_symlinks=False)) for child in listing]
        except OSError as error:
            raise EverstepError(
                f"{error.filename} cannot be read: {error.strerror}",
                "Check that it exists, and its permissions.",
            ) from None
        for child, status in children:
            name = prefix + child
            if stat.S_ISDIR(status.st_mode):
                yield from self._entries_below(f"{name}/")
            elif not is_own_file(name):
                yield self._entry(name, status)

    def _entry(self, name: str, status: os.stat_result) -> Entry:
        if not stat.S_ISREG(status.st_mode):
            kind = "symbolic link" if stat.S_ISLNK(status.st_mode) else "device, pipe or socket"
            raise EverstepError(
                f"{self._folder / name} is a {kind}",
                "Only regular files are copied. Replace it with the file, or remove it.",
            )
        return Entry(check_name(name, self.name), status.st_size, version_of(status), name)

    @contextmanager
    def open(self, entry: Entry, offset: int) -> Iterator[Content]:
        """Open a file at an offset.

        Raises:
            FileError: the file changed, is missing or forbidden.
        """
        path = self._folder / entry.locator
        try:
            file = path.open("rb", buffering=0)
        except FileNotFoundError:
            raise ChangedError(entry.name, "was removed after it was listed") from None
        except PermissionError:
            raise FileError(f"{path} cannot be read", "Check its permissions.") from None
        with file, check_unchanged(file, entry.name) as status:
            if (status.st_size, version_of(status)) != (entry.size, entry.version):
                raise ChangedError(entry.name, "changed after it was listed")
            file.seek(offset)
            yield Content(iter(lambda: file.read(CHUNK_BYTES), b""))


def version_of(status: os.stat_result) -> str:
    """Return the version of a file: the time of its last write."""
    return str(status.st_mtime_ns)


@contextmanager
def check_unchanged(file: IO[bytes], name: str) -> Iterator[os.stat_result]:
    """Yield the status of an open file, and check at the end of the block that it was not written to.

    The time of the last status change is compared too: no program can set it back.

    Raises:
        ChangedError: the file was written to.
    """
    before = os.fstat(file.fileno())
    yield before
    after = os.fstat(file.fileno())
    if (before.st_mtime_ns, before.st_ctime_ns) != (after.st_mtime_ns, after.st_ctime_ns):
        raise ChangedError(name)
