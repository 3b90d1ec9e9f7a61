"""What happened in a run, as JSON lines: one file for each worker, only ever appended to.

One `write` of one line to a file opened with O_APPEND, so that a worker killed in the middle leaves
at worst a torn last line, which the reader passes over.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """A worker's own file, opened with the first line: until then another run's may still lie there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1

    def note(self, kind: str, **fields: object) -> None:
        """Append one line; `at` is the time now in Unix seconds. A full disk loses lines, never the run."""
        self._write(
            json.dumps({"at": round(time.time(), 4), "kind": kind, **fields}).encode() + b"\n"
        )

    def _write(self, data: bytes) -> None:
        try:
            if self._file < 0:
                self._open()
            os.write(self._file, data)
        except OSError:
            return

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A torn line of a predecessor must not swallow the first line of its successor.
        torn = self._path.exists() and not _ends_with_newline(self._path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if torn:
            os.write(self._file, b"\n")


def parse(text: str) -> Iterator[dict[str, Any]]:
    """The lines of a journal's text in order; what is torn, or says not what happened and when, is passed over."""
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
            continue
        at = entry.get("at")
        if isinstance(at, (int, float)) and not isinstance(at, bool):
            yield entry


class Reader:
    """A journal folder that is read again and again while it grows: each line is taken up once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken: dict[Path, int] = {}  # bytes of each file
        self._entries: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """The lines of every file so far, in the order of their times, each with its `file`.

        A last line without its end is not there yet: it is still being written, or torn.
        """
        fresh = [
            {**entry, "file": path.stem}
            for path in sorted(self._folder.glob("*.jsonl"))
            for entry in parse(self._new_lines(path))
        ]
        if fresh:
            self._entries = sorted([*self._entries, *fresh], key=lambda entry: float(entry["at"]))
        return self._entries

    def _new_lines(self, path: Path) -> str:
        with path.open("rb") as file:
            file.seek(self._taken.get(path, 0))
            whole, newline, _ = file.read().rpartition(b"\n")
        self._taken[path] = self._taken.get(path, 0) + len(whole) + len(newline)
        return whole.decode(errors="replace")


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
