"""Journal of a run as JSON lines: one append-only file per worker.

A thread writes the lines, so that a file system that hangs does not stop the training. It
appends all waiting lines with one `write`, so that a worker killed during the write leaves at worst a torn
last line, which the reader skips. The file is closed every few seconds: blobfuse uploads a file when
it is closed, and an NFS client writes it back then, so that other machines see its lines.
"""

import atexit
import contextlib
import itertools
import json
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

MAX_WAITING_LINES = 20_000  # about 5 MB, an hour of fast steps; the oldest ones are dropped first
CLOSE_SECONDS = 5.0
LARGE_FILE_BYTES = 16 * 2**20
LARGE_CLOSE_SECONDS = 60.0  # interval for a large file: blobfuse uploads all of it each time
STUCK_SECONDS = 30.0
FLUSH_SECONDS = 3.0

_open_journals: "weakref.WeakSet[Journal]" = weakref.WeakSet()


class Journal:
    """One worker's journal file.

    The file is opened for the first line: until then, a file of an earlier run may have the same path.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = threading.Condition()
        self._waiting_lines: deque[bytes] = deque()
        self._lost_lines = 0
        self._file, self._opened_at, self._size = -1, 0.0, 0
        self._busy_since: float | None = None  # start of the write in progress
        self._closing = self._warned = False
        self._thread: threading.Thread | None = None

    def note(self, kind: str, **fields: object) -> None:
        """Add one line without waiting for the disk; `at` is the current Unix time in seconds.

        A disk that is full or hangs loses lines, never the run; `lost_lines` counts them later.
        """
        line = json.dumps({"at": round(time.time(), 4), "kind": kind, **fields}).encode() + b"\n"
        with self._changed:
            self._add(line)
            self._closing = False
            if self._thread is None:
                _open_journals.add(self)
                name = "everstep-journal"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        self._warn_if_stuck()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until all lines are written; return False if the disk takes longer."""
        with self._changed:
            return self._changed.wait_for(self._is_written, seconds)

    def close(self) -> None:
        """Write all lines and close the file, for a bounded time; a later line opens it again."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_written() and self._file < 0, FLUSH_SECONDS)

    def _is_written(self) -> bool:
        return not self._waiting_lines and self._busy_since is None

    def _add(self, line: bytes) -> None:
        if len(self._waiting_lines) >= MAX_WAITING_LINES:
            self._waiting_lines.popleft()
            self._lost_lines += 1
        self._waiting_lines.append(line)

    def _warn_if_stuck(self) -> None:
        busy_since = self._busy_since
        if busy_since is None or self._warned or time.monotonic() - busy_since < STUCK_SECONDS:
            return
        self._warned = True
        log.error(
            "the disk of %s does not respond: its newest lines are kept in memory; check the volume",
            self._path,
        )

    # --- the writing thread ---

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._waiting_lines or self._closing, self._seconds_to_close()
                )
                lines = list(self._waiting_lines)
                self._waiting_lines.clear()
                self._busy_since = time.monotonic()
            if lines:
                self._write(lines)
            if self._closing or self._seconds_to_close() == 0:
                self._close_file()
            with self._changed:
                self._busy_since = None
                is_last = self._closing and not self._waiting_lines
                if is_last:
                    self._closing, self._thread = False, None
                self._changed.notify_all()
                if is_last:
                    return

    def _seconds_to_close(self) -> float | None:
        if self._file < 0:
            return None
        seconds = LARGE_CLOSE_SECONDS if self._size > LARGE_FILE_BYTES else CLOSE_SECONDS
        close_at = self._opened_at + seconds
        return max(0.0, close_at - time.monotonic())

    def _write(self, lines: list[bytes]) -> None:
        reported_lost = self._lost_lines
        if reported_lost:
            entry = {"at": round(time.time(), 4), "kind": "lost_lines", "lines": reported_lost}
            lines = [json.dumps(entry).encode() + b"\n", *lines]
        byte_count = self._append(b"".join(lines))
        ends = itertools.accumulate(map(len, lines))
        unwritten = sum(end > byte_count for end in ends)
        if unwritten:
            self._close_file()  # opening the file again ends its torn line
        self._warned = False
        with self._changed:
            reported_count = reported_lost if unwritten < len(lines) else bool(reported_lost)
            self._lost_lines += unwritten - reported_count

    def _append(self, data: bytes) -> int:
        """Append bytes; return the number of bytes written."""
        try:
            if self._file < 0:
                self._open()
            byte_count = os.write(self._file, data)
        except OSError:
            return 0
        self._size += byte_count
        return byte_count

    def _close_file(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A torn line of a predecessor must not swallow the first line of its successor.
        has_torn_line = self._path.exists() and not _ends_with_newline(self._path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._opened_at, self._size = time.monotonic(), os.fstat(self._file).st_size
        if has_torn_line:
            os.write(self._file, b"\n")


@atexit.register
def flush_all(seconds: float = FLUSH_SECONDS) -> None:
    """Wait at most `seconds` until the lines of all journals of this process are written; call it before `os._exit`."""
    deadline = time.monotonic() + seconds
    for journal in list(_open_journals):
        journal.flush(max(0.0, deadline - time.monotonic()))


def parse(text: str) -> Iterator[dict[str, Any]]:
    """Yield the lines of a journal's text in order; skip torn lines and lines without a kind or a time."""
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str):
            continue
        timestamp = entry.get("at")
        if isinstance(timestamp, (int, float)) and not isinstance(timestamp, bool):
            yield entry


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
