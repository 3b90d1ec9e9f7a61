"""A simulated disk that fills up, and loses unsynced data in a power failure; its writer stops at any operation.

A folder's names become durable by `sync_folder`, a file's content by `sync`. After a power failure a
folder has any state between its last sync and the present, independently of all others; a file has
its synced content and any prefix of the unsynced rest, perhaps with a damaged byte.
"""

import errno
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from everstep.elastic.checkpoint.disk import Disk, OutputFile


class CrashError(BaseException):
    """The simulated end of the writing process."""


@dataclass
class File:
    """A file: its current content, and its durable content."""

    data: bytes = b""
    durable_data: bytes = b""


@dataclass
class Folder:
    """A folder: its current entries, and all its states since the last sync, the durable one first."""

    entries: dict[str, "File | Folder"] = field(default_factory=dict)
    states: list[dict[str, "File | Folder"]] = field(default_factory=lambda: [{}])

    def change(self, entries: dict[str, "File | Folder"]) -> None:
        self.entries = entries
        self.states.append(entries)


class SimulatedDisk(Disk):
    """A simulated disk.

    Attributes:
        actions_before: operation number -> action before it, which may raise `CrashError`.
        free_bytes: number of bytes that can still be written; None for no limit.
        operations: kinds of the operations so far, each with the last part of its path.
        max_unsynced_bytes: largest number of bytes of a file that were not synced.
    """

    def __init__(self) -> None:
        self.root = Folder()
        self.actions_before: dict[int, Callable[[], None]] = {}
        self.free_bytes: int | None = None
        self.operations: list[tuple[str, str]] = []
        self.max_unsynced_bytes = 0

    # --- faults ---

    def lose_power(self, rng: random.Random) -> None:
        """Lose unsynced data at random."""
        self._lose(self.root, rng)

    def _lose(self, folder: Folder, rng: random.Random) -> None:
        entries = rng.choice(folder.states)
        folder.entries, folder.states = entries, [entries]
        for entry in entries.values():
            if isinstance(entry, Folder):
                self._lose(entry, rng)
            elif entry.data != entry.durable_data:
                entry.data = entry.durable_data = self._tear(entry, rng)

    def _tear(self, file: File, rng: random.Random) -> bytes:
        """Return the synced content and a prefix of the rest, perhaps damaged."""
        synced_bytes = len(file.durable_data)
        content = bytearray(file.data[: rng.randint(synced_bytes, len(file.data))])
        if len(content) > synced_bytes and rng.random() < 0.5:
            content[rng.randrange(synced_bytes, len(content))] ^= 1
        return bytes(content)

    def _begin(self, kind: str, path: Path) -> None:
        action = self.actions_before.pop(len(self.operations), None)
        self.operations.append((kind, path.name))
        if action:
            action()

    # --- the interface ---

    def names(self, folder: Path) -> list[str]:
        try:
            return list(self._folder(folder).entries)
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        return path.name in self.names(path.parent)

    def size(self, path: Path) -> int:
        entry = self._folder(path.parent).entries.get(path.name) if self.exists(path) else None
        return len(entry.data) if isinstance(entry, File) else -1

    def make_folder(self, path: Path) -> None:
        if path.parent != path.parent.parent and not self.exists(path.parent):
            self.make_folder(path.parent)
            self.sync_folder(path.parent.parent)
        self._begin("mkdir", path)
        parent = self._folder(path.parent)
        parent.change({path.name: Folder(), **parent.entries})

    @contextmanager
    def create(self, path: Path) -> Iterator[OutputFile]:
        self._begin("create", path)
        parent, file = self._folder(path.parent), File()
        parent.change({**parent.entries, path.name: file})
        yield _Output(self, path, file)

    def read(self, path: Path) -> Iterator[bytes]:
        entry = self._folder(path.parent).entries.get(path.name)
        if not isinstance(entry, File):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        yield entry.data

    def sync_folder(self, path: Path) -> None:
        self._begin("sync folder", path)
        folder = self._folder(path)
        folder.states = [folder.entries]

    def is_mount(self, path: Path) -> bool:
        return path == path.parent

    def rename(self, old: Path, new: Path) -> None:
        self._begin("rename", new)
        folder = self._folder(old.parent)
        if old.name not in folder.entries:
            raise FileNotFoundError(errno.ENOENT, "no such folder", str(old))
        target = folder.entries.get(new.name)
        if isinstance(target, Folder) and target.entries:
            raise OSError(errno.ENOTEMPTY, "not empty", str(new))
        entries = {name: entry for name, entry in folder.entries.items() if name != old.name}
        folder.change({**entries, new.name: folder.entries[old.name]})

    def remove(self, folder: Path) -> None:
        if not self.exists(folder):
            return
        for name in self.names(folder):
            self._begin("remove", folder / name)
            self._drop(folder / name)
        self._begin("remove", folder)
        self._drop(folder)

    def _drop(self, path: Path) -> None:
        parent = self._folder(path.parent)
        parent.change({n: entry for n, entry in parent.entries.items() if n != path.name})

    def _folder(self, path: Path) -> Folder:
        folder = self.root
        for part in path.parts[1:]:
            entry = folder.entries.get(part)
            if not isinstance(entry, Folder):
                raise FileNotFoundError(errno.ENOENT, "no such folder", str(path))
            folder = entry
        return folder


class _Output:
    def __init__(self, disk: SimulatedDisk, path: Path, file: File) -> None:
        self._disk, self._path, self._file = disk, path, file

    def write(self, data: bytes | memoryview, /) -> object:
        disk, content = self._disk, bytes(data)
        disk._begin("write", self._path)
        if disk.free_bytes is not None and disk.free_bytes < len(content):
            self._file.data += content[: disk.free_bytes]
            disk.free_bytes = 0
            raise OSError(errno.ENOSPC, "no space left on device", str(self._path))
        if disk.free_bytes is not None:
            disk.free_bytes -= len(content)
        self._file.data += content
        unsynced_bytes = len(self._file.data) - len(self._file.durable_data)
        disk.max_unsynced_bytes = max(disk.max_unsynced_bytes, unsynced_bytes)
        return len(content)

    def sync(self) -> None:
        self._disk._begin("sync", self._path)
        self._file.durable_data = self._file.data


class StaleView(Disk):
    """The same disk as another machine sees it: its first listings come from a cache."""

    def __init__(self, disk: SimulatedDisk, folder: Path, cached_reads: int) -> None:
        self._disk, self._folder, self._cached_reads = disk, folder, cached_reads
        self._cached_names = disk.names(folder)

    def names(self, folder: Path) -> list[str]:
        self._cached_reads -= 1
        return (
            self._cached_names
            if self._cached_reads >= 0 and folder == self._folder
            else self._disk.names(folder)
        )

    def exists(self, path: Path) -> bool:
        return path.name in self.names(path.parent)

    def read(self, path: Path) -> Iterator[bytes]:
        if self._cached_reads >= 0 and path.parent.name not in self._cached_names:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        yield from self._disk.read(path)

    def sync_folder(self, path: Path) -> None:
        self._disk.sync_folder(path)

    def rename(self, old: Path, new: Path) -> None:
        self._disk.rename(old, new)

    def remove(self, folder: Path) -> None:
        self._disk.remove(folder)
