"""Which job is due for a pass, and when: each at most once in the queue, and never in two passes at once.

kopf's own timers would do as well, but they put a finalizer on every ElasticJob, and then no job
can be deleted while no controller runs.
"""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FIRST_RETRY_SECONDS = 0.2
LONGEST_RETRY_SECONDS = 60.0


class WorkQueue(Generic[Key]):
    """Keys and the moments at which they are due. To be used from one event loop only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._busy: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Have a key looked at in so many seconds; an earlier appointment stands."""
        moment = self._clock() + delay
        if moment < self._due.get(key, float("inf")):
            self._due[key] = moment
            self._changed.set()

    async def take(self) -> Key:
        """Return the next key that is due and that nobody works on; wait for it."""
        while True:
            ready = [(moment, key) for key, moment in self._due.items() if key not in self._busy]
            moment, key = min(ready, key=lambda pair: pair[0], default=(float("inf"), None))
            wait = moment - self._clock()
            if key is not None and wait <= 0:
                del self._due[key]
                self._busy.add(key)
                return key
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), None if key is None else wait)
            except TimeoutError:
                continue

    def done(self, key: Key) -> None:
        """Say that a pass over a key went well."""
        self._busy.discard(key)
        self._failures.pop(key, None)
        self._changed.set()

    def failed(self, key: Key) -> float:
        """Say that a pass over a key failed; it comes again after a while that doubles. Return that while."""
        self._busy.discard(key)
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** min(failures, 20), LONGEST_RETRY_SECONDS)
        self._due.pop(
            key, None
        )  # an event may have asked for an immediate pass, which would fail the same way
        self._changed.set()
        self.add(key, delay)
        return delay
