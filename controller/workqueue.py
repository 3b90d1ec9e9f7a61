"""A delaying work queue: a key is queued at most once and never processed twice at the same time.

kopf's timers would set a finalizer on every ElasticJob, and then no job could be deleted without a
running controller.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 60.0


class WorkQueue(Generic[Key]):
    """Keys and their due times. Usable from one event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._processing: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Queue a key with a delay in seconds; an earlier due time has precedence."""
        time_due = self._clock() + delay
        if time_due < self._due.get(key, float("inf")):
            self._due[key] = time_due
            self._changed.set()

    async def take(self) -> Key:
        """Wait for the next due key that is not being processed, and return it."""
        while True:
            ready = [
                (time_due, key)
                for key, time_due in self._due.items()
                if key not in self._processing
            ]
            time_due, key = min(ready, key=lambda pair: pair[0], default=(float("inf"), None))
            wait = time_due - self._clock()
            if key is not None and wait <= 0:
                del self._due[key]
                self._processing.add(key)
                return key
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), None if key is None else wait)
            except TimeoutError:
                continue

    def done(self, key: Key) -> None:
        """Mark a key as processed."""
        self._processing.discard(key)
        self._failures.pop(key, None)
        self._changed.set()

    def failed(self, key: Key) -> float:
        """Queue a failed key again with a delay that doubles; return the delay in seconds."""
        self._processing.discard(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** min(failures, 20), MAX_RETRY_SECONDS)
        # The pass's own writes may have queued the key; without a delay it would write and fail in a loop.
        self._due.pop(key, None)
        self._changed.set()
        self.add(key, delay)
        return delay
