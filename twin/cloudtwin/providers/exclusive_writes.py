"""Writes that a service accepts only one at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from cloudtwin.providers.errors import CloudError
from cloudtwin.providers.model import Inputs, ResourceType
from cloudtwin.providers.timeouts import Timeouts

EXCLUSIVE_SECONDS = 0.3


class ExclusiveWrites:
    """The exclusive writes that one provider has in progress. Safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy_keys: set[str] = set()

    @contextmanager
    def exclusive(self, kind: ResourceType, inputs: Inputs, timeouts: Timeouts) -> Iterator[None]:
        """Refuse concurrent writes to the same object while the block runs.

        The write takes a moment longer: otherwise concurrent writes of a program without `depends_on`
        would often succeed here, and fail in the cloud.

        Raises:
            CloudError: another write to the same object is in progress.
        """
        key = kind.exclusive_key(inputs) if kind.exclusive_key else ""
        if not key:
            yield
            return
        with self._lock:
            if key in self._busy_keys:
                reason = f"{key} is already being written; chain the writes with depends_on"
                raise CloudError(kind.exclusive_code, reason)
            self._busy_keys.add(key)
        try:
            timeouts.pause(EXCLUSIVE_SECONDS)
            yield
        finally:
            with self._lock:
                self._busy_keys.discard(key)
