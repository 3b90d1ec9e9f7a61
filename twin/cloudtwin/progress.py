"""Progress of long actions.

Functions that build, start or wait take a `Progress` and are independent of terminals. A command line provides
an implementation for terminals; `Lines` is for logs and continuous integration; `Silent` shows nothing.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO


class Step(Protocol):
    """One running action."""

    def note(self, detail: str) -> None:
        """Show the current detail of the action next to its elapsed time, in place of the previous one."""


class Progress(Protocol):
    """Receiver of steps."""

    def step(self, action: str) -> AbstractContextManager[Step]:
        """Announce an action; when the block ends, report its result and duration."""


class Silent:
    """Progress that is discarded."""

    @contextmanager
    def step(self, action: str) -> Iterator[Step]:
        """Announce nothing."""
        del action
        yield self

    def note(self, detail: str) -> None:
        """Discard the detail."""


class Lines:
    """Progress as plain lines on standard error; standard output stays free for results."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    @contextmanager
    def step(self, action: str) -> Iterator[Step]:
        """Print the step when it begins, and again with its result and duration when it ends."""
        started_at, mark = time.monotonic(), "failed"
        self._print(f"  ... {action}")
        try:
            yield self
            mark = "done"
        finally:
            self._print(f"  {mark}  {action} ({time.monotonic() - started_at:.1f} s)")

    def note(self, detail: str) -> None:
        """Print the detail under its step."""
        self._print(f"      {detail}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
