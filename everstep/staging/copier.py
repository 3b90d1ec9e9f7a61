"""Execution of a plan: several files are copied at a time, and completed files are recorded in groups."""

import queue
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from threading import Event, Lock

from everstep.staging.content import FileError, Source
from everstep.staging.copying import copy, sha256_and_md5
from everstep.staging.entry import Record
from everstep.staging.journal import StagingState
from everstep.staging.plan import Action, Task

GROUP_FILES = 256
GROUP_SECONDS = 1.0
"""Completed files are recorded together, since the journal is synced each time."""

TICK_SECONDS = 0.2
WINDOW = 4
"""Files handed to each worker ahead of time."""

MAX_FAILURES = 100
"""Number of files that cannot be copied after which no further file is handed to a worker."""


class StoppedError(Exception):
    """The copy of a file was stopped because the run ends."""


@dataclass
class CopyProgress:
    """Progress of a run.

    Attributes:
        files: files that are complete.
        bytes: bytes of complete files, and of the files that are being copied.
        failures: files that could not be copied.
    """

    files: int = 0
    bytes: int = 0
    failures: list[FileError] = field(default_factory=list)


class Copier:
    """The workers of one run.

    Attributes:
        progress: progress of the run.
    """

    def __init__(self, source: Source, destination: Path, state: StagingState) -> None:
        self._source, self._destination, self._state = source, destination, state
        self._ended: queue.SimpleQueue[Future[Record]] = queue.SimpleQueue()
        self._stop = Event()
        self._lock = Lock()
        self.progress = CopyProgress()

    def run(self, tasks: Iterator[Task], workers: int) -> Generator[CopyProgress, None, None]:
        """Execute tasks; yield the progress from time to time.

        Raises:
            OSError: the source cannot be read or the destination cannot be written; the files completed before are
                recorded.
        """
        completed: list[Record] = []
        with ThreadPoolExecutor(workers, "staging") as pool:
            try:
                unfinished_count = self._submit(pool, tasks, workers * WINDOW)
                recorded_at = time.monotonic()
                while unfinished_count:
                    futures = self._wait()
                    unfinished_count -= len(futures)
                    completed += self._results(futures)
                    if len(self.progress.failures) < MAX_FAILURES:
                        unfinished_count += self._submit(pool, tasks, len(futures))
                    if (
                        len(completed) >= GROUP_FILES
                        or time.monotonic() - recorded_at > GROUP_SECONDS
                    ):
                        self._state.append(completed)
                        completed, recorded_at = [], time.monotonic()
                        yield self.progress
            finally:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                self._state.append(completed)
        yield self.progress

    def _submit(self, pool: ThreadPoolExecutor, tasks: Iterator[Task], count: int) -> int:
        """Submit the next tasks to the pool; return their number."""
        submitted = 0
        for task in islice(tasks, count):
            pool.submit(self._execute, task).add_done_callback(self._ended.put)
            submitted += 1
        return submitted

    def _wait(self) -> list[Future[Record]]:
        """Return the tasks that ended, after a short wait; the list may be empty."""
        futures: list[Future[Record]] = []
        try:
            futures.append(self._ended.get(timeout=TICK_SECONDS))
            while len(futures) < GROUP_FILES:
                futures.append(self._ended.get_nowait())
        except queue.Empty:
            pass
        return futures

    def _results(self, futures: list[Future[Record]]) -> Iterator[Record]:
        for future in futures:
            try:
                record = future.result()
            except FileError as error:
                self.progress.failures.append(error)
                continue
            self.progress.files += 1
            yield record

    def _execute(self, task: Task) -> Record:
        """Compare or copy a file; return its record."""
        target = self._destination / task.name
        if task.action == Action.CHECK:
            sha256, md5 = sha256_and_md5(target)
            is_equal = sha256 == task.sha256 if task.sha256 else md5 == task.md5
            if is_equal:
                self._add_bytes(task.size)
                return Record(task.name, task.size, task.version, sha256)
        return copy(self._source, task.entry, target, self._state.partial, self._add_bytes)

    def _add_bytes(self, count: int) -> None:
        """Add bytes to the progress.

        Raises:
            StoppedError: the run ends, so that a large file does not delay it.
        """
        with self._lock:
            self.progress.bytes += count
        if count > 0 and self._stop.is_set():
            raise StoppedError
