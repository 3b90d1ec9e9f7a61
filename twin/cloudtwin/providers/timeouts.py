"""Time limit and interruption of one operation."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

DEFAULT_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """Time limit and interruption of one operation.

    Attributes:
        report: function that shows the current step to the user, in place of the previous text.
        cancelled: event that is set when the user interrupts.
        seconds: time limit.
        started_at: start on the monotonic clock.
    """

    report: Callable[[str], None]
    cancelled: threading.Event
    seconds: float = DEFAULT_SECONDS
    started_at: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        """Seconds since the operation started."""
        return time.monotonic() - self.started_at

    @property
    def remaining(self) -> float:
        """Seconds until the time limit; negative after it."""
        return self.seconds - self.elapsed

    @property
    def expired(self) -> bool:
        """True once the time limit has passed."""
        return self.remaining <= 0

    def pause(self, seconds: float) -> None:
        """Wait for the given time; an interrupt ends the wait."""
        self.cancelled.wait(seconds)
