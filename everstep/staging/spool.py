"""Sorted lists on disk. An external merge sort holds only one chunk in memory, however long the list is.

Each line is a JSON array. A list is written under a temporary name and renamed, so it is complete or absent.
"""

import contextlib
import heapq
import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Protocol, TypeVar

from everstep.staging.entry import sort_key
from everstep.staging.totals import Totals

CHUNK_ITEMS = 50_000
"""Number of entries that are sorted in memory; each takes about half a kilobyte."""

_encode = json.JSONEncoder(separators=(",", ":")).encode
_decode = json.JSONDecoder().decode


class ListItem(Protocol):
    """An item of a list: a NamedTuple with the name of a file and its size."""

    @property
    def name(self) -> str:
        """Path below the destination."""

    @property
    def size(self) -> int:
        """Size in bytes."""


Item = TypeVar("Item", bound=ListItem)


def key_of(item: ListItem) -> str:
    """Return the key by which lists are sorted."""
    return sort_key(item.name)


def line_of(item: ListItem) -> str:
    """Return the line of an item."""
    return _encode(item) + "\n"


def write(path: Path, items: Iterable[ListItem]) -> Totals:
    """Write a list and sync it; return its totals."""
    temporary = path.with_name(path.name + ".new")
    files = size = 0
    with temporary.open("w") as file:
        for item in items:
            file.write(line_of(item))
            files += 1
            size += item.size
        sync(file)
    temporary.replace(path)
    return Totals(files, size)


def read(path: Path, kind: type[Item]) -> Iterator[Item]:
    """Yield the items of a list; none if there is no list.

    An invalid line is skipped: a killed process may leave a torn line in the journal, and the file that it
    records is then copied again.
    """
    if not path.exists():
        return
    with path.open(errors="replace") as file:
        for line in file:
            try:
                item = kind(*_decode(line))
            except (ValueError, TypeError):
                continue
            yield item


def write_sorted(
    path: Path, items: Iterable[Item], kind: type[Item], chunk: int = CHUNK_ITEMS
) -> Totals:
    """Write items as a list sorted by name; items of the same name keep their order."""
    with contextlib.ExitStack() as cleanup:
        runs: list[Path] = []
        for number, part in enumerate(_chunks(items, chunk)):
            run = path.with_name(f"{path.name}.run{number}")
            cleanup.callback(run.unlink, missing_ok=True)
            write(run, sorted(part, key=key_of))
            runs.append(run)
        return write(path, heapq.merge(*(read(run, kind) for run in runs), key=key_of))


def _chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    remaining = iter(items)
    while chunk := list(islice(remaining, size)):
        yield chunk


def sync(file: IO[str] | IO[bytes]) -> None:
    """Make the content of a file durable."""
    file.flush()
    os.fsync(file.fileno())


def last_of_each(items: Iterable[Item], key: Callable[[Item], str] = key_of) -> Iterator[Item]:
    """Yield the last of each group of items of the same name."""
    previous: Item | None = None
    for item in items:
        if previous is not None and key(previous) != key(item):
            yield previous
        previous = item
    if previous is not None:
        yield previous
