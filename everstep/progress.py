"""Progress of long steps, for the user.

The components that build, start and wait take a `Progress` and do not depend on terminals. The command
line provides an implementation that draws; `Lines` is for logs and continuous integration; `Silent` shows nothing.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO


class Step(Protocol):
    """One running step."""

    def note(self, detail: str) -> None:
        """Report the current detail of the step; the last one is shown next to its elapsed time."""


class Progress(Protocol):
    """The display of steps."""

    def step(self, action: str) -> AbstractContextManager[Step]:
        """Announce a step, and at the end of the block its result and duration."""


class Silent:
    """Progress without a display."""

    @contextmanager
    def step(self, action: str) -> Iterator[Step]:
        """Announce nothing."""
        del action
        yield self

    def note(self, detail: str) -> None:
        """Drop the detail."""


class Lines:
    """Progress as plain lines on standard error, one when a step starts, reports or ends; for logs."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr

    @contextmanager
    def step(self, action: str) -> Iterator[Step]:
        """Print the step when it begins and again, with its result and its duration, when it ends."""
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
