"""How long one operation may take, whom it tells, and whether the user has given up."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

DEFAULT_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """The patience of one operation.

    Attributes:
        seconds: until it counts as failed.
        tell: shows what it is at; the next text takes the place of the last.
        cancelled: set when the user interrupts.
        began: on the monotonic clock.
    """

    tell: Callable[[str], None]
    cancelled: threading.Event
    seconds: float = DEFAULT_SECONDS
    began: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        """Tell whether the time is up."""
        return time.monotonic() - self.began >= self.seconds

    def pause(self, seconds: float) -> None:
        """Wait; an interrupt ends the wait."""
        self.cancelled.wait(seconds)
