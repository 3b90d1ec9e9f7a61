"""Watchdog for work with the storage of the checkpoints, for which all other workers of the group wait.

A hung mount never responds, and a process in a system call to it cannot be interrupted. So a thread
watches when the storage last responded. A slow read or write is reported. A worker whose storage hangs gives up, so
that another node continues its work. The others wait without a limit: this is what ends their wait.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
REPORT_SECONDS = 60.0


@contextlib.contextmanager
def watch_storage(
    responded_at: Callable[[], float],
    timeout_seconds: float,
    on_hung: Callable[[str], object],
    activity: str = "reading the checkpoint",
) -> Iterator[None]:
    """Watch the work in this block.

    Args:
        responded_at: function that returns the monotonic time in seconds at which the storage last responded.
        timeout_seconds: time without a response after which the storage counts as hung.
        on_hung: called once with the reason, from the watching thread.
        activity: the work, for messages.
    """
    started_at, finished = time.monotonic(), threading.Event()

    def watch() -> None:
        report_at, last_poll_at, silent_seconds = started_at + REPORT_SECONDS, started_at, 0.0
        poll_seconds = min(POLL_SECONDS, timeout_seconds / 4)
        while not finished.wait(poll_seconds):
            now = time.monotonic()
            # A frozen or starved process observes no responses: only the time in which this thread runs counts.
            has_responded = responded_at() > last_poll_at
            elapsed = min(now - last_poll_at, 2 * poll_seconds)
            silent_seconds = 0.0 if has_responded else silent_seconds + elapsed
            last_poll_at = now
            if silent_seconds >= timeout_seconds:
                reason = (
                    f"the storage of the checkpoints has not responded for {silent_seconds:.0f} s while this worker "
                    f"was {activity}: it hangs"
                )
                log.error("%s; this worker gives up, and another worker continues", reason)
                on_hung(reason)
                return
            if now >= report_at:
                report_at += REPORT_SECONDS
                log.error(
                    "still %s after %.0f s; the storage last responded %.0f s ago; all workers wait",
                    activity,
                    now - started_at,
                    silent_seconds,
                )

    threading.Thread(target=watch, name="everstep-restore", daemon=True).start()
    try:
        yield
    finally:
        finished.set()
