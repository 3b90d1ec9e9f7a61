"""Watches the reading of a checkpoint: all other workers of the group wait for it.

A hung mount never answers, and a process in such a system call cannot be interrupted. So a thread
watches when the storage last responded. A slow reading is reported; a hung one is given up, so that
another node reads.
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
def watched(
    responded_at: Callable[[], float], timeout_seconds: float, on_hung: Callable[[str], object]
) -> Iterator[None]:
    """Watch the reading in this block.

    Args:
        responded_at: returns the time of the monotonic clock at which the storage last responded.
        timeout_seconds: time without a response after which the storage counts as hung.
        on_hung: called once with the reason, from the watching thread.
    """
    started_at, finished = time.monotonic(), threading.Event()

    def watch() -> None:
        report_at, last, silent = started_at + REPORT_SECONDS, started_at, 0.0
        poll = min(POLL_SECONDS, timeout_seconds / 4)
        while not finished.wait(poll):
            now = time.monotonic()
            # A frozen or starved process sees no responses: only the time in which this thread runs counts.
            silent = 0.0 if responded_at() > last else silent + min(now - last, 2 * poll)
            last = now
            if silent >= timeout_seconds:
                reason = (
                    f"the storage of the checkpoints has not responded for {silent:.0f} s: it hangs"
                )
                log.error("%s; this worker gives up, and another one reads", reason)
                on_hung(reason)
                return
            if now >= report_at:
                report_at += REPORT_SECONDS
                log.error(
                    "the checkpoint has been read for %.0f s; its storage answered %.0f s ago; "
                    "all workers wait",
                    *(now - started_at, silent),
                )

    threading.Thread(target=watch, name="everstep-restore", daemon=True).start()
    try:
        yield
    finally:
        finished.set()
