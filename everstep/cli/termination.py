"""SIGTERM and SIGHUP as an exception, so that a command cleans up after them as after Ctrl-C.

`timeout`, a CI that cancels a job and a closed terminal send these signals. By default they end a process without its
`finally` blocks, which remove jobs from clusters and end child processes.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Terminated(KeyboardInterrupt):
    """This process has received a signal of `SIGNALS`: code for Ctrl-C handles it too."""


@contextmanager
def termination_as_exception() -> Iterator[None]:
    """Raise `Terminated` at the first signal of `SIGNALS` in the block; exit with 128 plus its number after the block.

    Later ones have no effect, since systemd sends both, and the second would interrupt the cleanup; Ctrl-C still does.
    A signal that is ignored, such as SIGHUP under `nohup`, stays ignored.
    """
    received: list[int] = []

    def raise_once(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) == 1:
            raise Terminated

    handled = [number for number in SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in handled:
        signal.signal(number, raise_once)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        if received:
            sys.exit(128 + received[0])
