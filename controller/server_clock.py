"""The time of the API server, from the headers of its responses.

The API server and the scheduler set the times in objects. With a clock that is two minutes ahead of theirs, the
controller would give up each worker as soon as it is created.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

log = logging.getLogger(__name__)

TOLERANCE = timedelta(seconds=5)
"""Difference that counts as none: the header has whole seconds, and a response takes time."""


@dataclass
class ServerClock:
    """A clock that is corrected by the time in responses.

    Attributes:
        local_time: function that returns the time of this machine.
    """

    local_time: Callable[[], datetime] = lambda: datetime.now(UTC)
    _offset: timedelta = timedelta()

    def now(self) -> datetime:
        """Return the time of the API server; before the first response, the time of this machine."""
        return self.local_time() + self._offset

    def correct(self, date: str | None) -> None:
        """Correct the clock by the header `Date` of a response that has just arrived."""
        try:
            offset = parsedate_to_datetime(date or "") - self.local_time()
        except (TypeError, ValueError):  # no date, or one without a time zone
            return
        if abs(offset) <= TOLERANCE:
            offset = timedelta()
        elif not self._offset:
            log.warning(
                "the clock of this machine differs by %.0f s from the API server's; the API server's time is used",
                abs(offset.total_seconds()),
            )
        self._offset = offset
