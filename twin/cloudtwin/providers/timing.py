"""Time limits of operations, and writes that a service accepts only one at a time."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cloudtwin.providers.errors import CloudError
from cloudtwin.providers.model import Inputs, ResourceType

DEFAULT_SECONDS = 600.0
EXCLUSIVE_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Time limit and interruption of one operation.

    Attributes:
        report: shows the current step to the user; replaces the previous text.
        cancelled: set when the user interrupts.
        seconds: time limit.
        started: start on the monotonic clock.
    """

    report: Callable[[str], None]
    cancelled: threading.Event
    seconds: float = DEFAULT_SECONDS
    started: float = field(default_factory=time.monotonic)

    @property
    def expired(self) -> bool:
        """True once the time limit has passed."""
        return time.monotonic() - self.started >= self.seconds

    def pause(self, seconds: float) -> None:
        """Wait for a time; an interrupt ends the wait."""
        self.cancelled.wait(seconds)


class ExclusiveWrites:
    """The exclusive writes in progress of one provider. Safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[str] = set()

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
            if key in self._busy:
                reason = f"{key} is being written already; chain the writes with depends_on"
                raise CloudError(kind.exclusive_code, reason)
            self._busy.add(key)
        try:
            timeouts.pause(EXCLUSIVE_SECONDS)
            yield
        finally:
            with self._lock:
                self._busy.discard(key)
