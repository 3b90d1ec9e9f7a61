"""Plan of a staging run: copy, compare or keep each file. Pure functions over sorted streams."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple, TypeVar

from everstep.errors import EverstepError
from everstep.staging.entry import Entry, Record
from everstep.staging.spool import key_of
from everstep.staging.totals import Totals

Item = TypeVar("Item", Entry, Record)
Other = TypeVar("Other", Entry, Record)

SizeOf = Callable[[str], int | None]
"""Size of a file at the destination by its name; None if it is missing or not a regular file."""


class Action(StrEnum):
    """Action on a file."""

    KEEP = "keep"  # copied, and still at the destination
    CHECK = "check"  # the destination has a file of this size, which a checksum can verify
    COPY = "copy"


class Decision(NamedTuple):
    """Action on a file, and its reason."""

    action: Action
    reason: str


class Task(NamedTuple):
    """A file and the action on it.

    Attributes:
        name: name of the Entry.
        size: size of the Entry, in bytes.
        version: version of the Entry.
        locator: locator of the Entry.
        md5: MD5 of the Entry; empty if it has none.
        action: value of the Action.
        reason: reason for the action.
        sha256: SHA-256 of the earlier copy if the source has not changed since; otherwise empty.
        present: size of the file at the destination, in bytes; None if it is missing or not a regular file.
    """

    name: str
    size: int
    version: str
    locator: str
    md5: str
    action: str
    reason: str
    sha256: str
    present: int | None = None

    @property
    def entry(self) -> Entry:
        """The file at the source."""
        return Entry(*self[:5])


class Volume(NamedTuple):
    """Free space of the destination.

    Attributes:
        free_bytes: bytes that a process without privileges may write, plus the bytes that incomplete files occupy.
        block_bytes: size of an allocation block, in bytes.
        free_files: number of files that may be created; None if the file system has no limit.
    """

    free_bytes: int
    block_bytes: int
    free_files: int | None


def decide(
    entry: Entry, record: Record | None, present_bytes: int | None, *, verify: bool = False
) -> Decision:
    """Decide the action on a file.

    Args:
        entry: the file at the source.
        record: the record of its last complete copy; None if there is none.
        present_bytes: size of the file at the destination; None if it is missing or not a regular file.
        verify: whether the content of complete files is read again.
    """
    if present_bytes is None:
        return Decision(Action.COPY, "missing at the destination")
    if is_current(record, entry) and present_bytes == entry.size:
        if verify:
            return Decision(Action.CHECK, "content is verified")
        return Decision(Action.KEEP, "already copied and unchanged")
    if present_bytes == entry.size and entry.md5:
        return Decision(Action.CHECK, "a file of this size exists")
    return Decision(Action.COPY, "changed at the source or the destination")


def is_current(record: Record | None, entry: Entry) -> bool:
    """Return True if a record describes the present version of a file."""
    return record is not None and (record.size, record.version) == (entry.size, entry.version)


def tasks(
    entries: Iterable[Entry],
    records: Iterable[Record],
    size_of: SizeOf,
    source: str,
    *,
    verify: bool = False,
) -> Iterator[Task]:
    """Yield the task of each file of a source.

    Args:
        entries: files of the source, sorted by name.
        records: complete files of earlier runs, sorted by name, one for each name.
        size_of: sizes at the destination.
        source: the source, for errors.
        verify: whether the content of complete files is read again.

    Raises:
        EverstepError: a name occurs twice, or is both a file and a folder.
    """
    for entry, record in join(checked_entries(entries, source), records):
        present = size_of(entry.name)
        decision = decide(entry, record, present, verify=verify)
        sha256 = record.sha256 if record and is_current(record, entry) else ""
        yield Task(*entry, *decision, sha256, present)


def join(items: Iterable[Item], others: Iterable[Other]) -> Iterator[tuple[Item, Other | None]]:
    """Yield each item with the other item of its name, if there is one; both are sorted by name."""
    remaining = iter(others)
    other = next(remaining, None)
    for item in items:
        item_key = key_of(item)
        while other is not None and key_of(other) < item_key:
            other = next(remaining, None)
        yield item, other if other is not None and other.name == item.name else None


def checked_entries(entries: Iterable[Entry], source: str) -> Iterator[Entry]:
    """Yield the entries and check their names.

    Raises:
        EverstepError: a name occurs twice, or is both a file and a folder.
    """
    previous = ""
    for entry in entries:
        if previous and entry.name == previous:
            raise EverstepError(
                f"{source} has two files for {entry.name!r}", "Remove or rename one of them."
            )
        if previous and entry.name.startswith(previous + "/"):
            raise EverstepError(
                f"{source} has the file {previous!r} and the file {entry.name!r} below it",
                "One name cannot be a file and a folder. Remove or rename one of them.",
            )
        previous = entry.name
        yield entry


class Tally:
    """Totals of the planned actions."""

    def __init__(self, block_bytes: int) -> None:
        """Start at zero.

        Args:
            block_bytes: size of an allocation block at the destination, in bytes.
        """
        self._block_bytes = block_bytes
        self._files, self._bytes = Counter[str](), Counter[str]()
        self._new_files = self._replaced_files = 0
        self._growth = self._largest_replaced = 0  # bytes in whole blocks
        self.reasons = Counter[str]()

    def add(self, task: Task) -> None:
        """Count a task."""
        self._files[task.action] += 1
        self._bytes[task.action] += task.size
        self.reasons[task.reason] += 1
        if task.action == Action.KEEP:
            return
        # A file that differs from the source's checksum is copied too.
        size = self._in_blocks(task.size)
        if task.present is None:
            self._new_files += 1
            self._growth += size
        else:
            self._replaced_files += 1
            self._growth += max(0, size - self._in_blocks(task.present))
            self._largest_replaced = max(self._largest_replaced, size)

    def _in_blocks(self, size: int) -> int:
        return -(-size // self._block_bytes) * self._block_bytes

    def totals(self, action: Action) -> Totals:
        """Return the number and the bytes of the files with an action."""
        return Totals(self._files[action], self._bytes[action])

    def required(self, workers: int) -> Totals:
        """Return the maximum number of files that are created, and the bytes that they occupy.

        A file that is replaced stays until its new content is complete.

        Args:
            workers: number of files copied at a time.
        """
        replaced_together = min(workers, self._replaced_files)
        return Totals(
            self._new_files + replaced_together,
            self._growth + replaced_together * self._largest_replaced,
        )


def check_volume(required: Totals, volume: Volume, destination: str) -> None:
    """Check that a volume can hold the copy.

    Raises:
        EverstepError: the volume is too small.
    """
    if required.bytes > volume.free_bytes:
        missing = required.bytes - volume.free_bytes
        raise EverstepError(
            f"{destination} has {volume.free_bytes:,} bytes free; {required.bytes:,} are needed",
            f"Enlarge the volume or free {missing:,} bytes. Nothing was copied.",
        )
    if volume.free_files is not None and required.files > volume.free_files:
        raise EverstepError(
            f"{destination} can hold {volume.free_files:,} more files; {required.files:,} are needed",
            "Use a file system with more inodes, or stage shards instead. Nothing was copied.",
        )
