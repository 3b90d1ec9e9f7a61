"""The two consoles, and progress on one of them.

Standard output has results only, so that it can be piped; messages go to standard error. rich honors
NO_COLOR and detects whether a stream is a terminal. Emoji codes are off: an IPv6 address may contain `:a:`.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from everstep.cli.durations import clock
from everstep.progress import Lines, Progress, Step

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 8

results = Console(highlight=False, soft_wrap=True, emoji=False)
"""Standard output, for results."""

messages = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
"""Standard error, for messages, progress and errors."""


def can_ask() -> bool:
    """Return True if a user at a terminal can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty()  # None: a closed stdin


def say(message: str, style: str = "") -> None:
    """Print a message for the user."""
    messages.print(Text(message, style=style))


def warn(message: str) -> None:
    """Print a warning for the user."""
    messages.print(f"[yellow]warning:[/] {escape(message)}")


class Terminal:
    """Progress on a terminal: running steps as live lines with elapsed time, finished steps above.

    Steps may be nested; an inner step is indented below its outer one.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or messages
        self._running: list[_RunningStep] = []
        self._live: Live | None = None

    @contextmanager
    def step(self, action: str) -> Iterator[Step]:
        """Draw a step while its block runs, then print one line with its result and its duration."""
        running_step = _RunningStep(action, depth=len(self._running))
        self._running.append(running_step)
        self._open()
        mark, color = "✗", "red"
        try:
            yield running_step
            mark, color = "✓", "green"
        finally:
            self._running.remove(running_step)
            self._console.print(running_step.end_line(mark, color))
            self._close()

    def _open(self) -> None:
        if self._live is None:
            self._live = Live(
                get_renderable=self._draw,
                console=self._console,
                refresh_per_second=FRAMES_PER_SECOND,
                transient=True,
            )
            self._live.start()

    def _close(self) -> None:
        if not self._running and self._live is not None:
            self._live.stop()
            self._live = None

    def _draw(self) -> Text:
        width = self._console.width
        lines = [step.running_line(width) for step in self._running]
        return Text("\n").join(lines)


class _RunningStep:
    """A running step."""

    def __init__(self, action: str, depth: int) -> None:
        self._action = action
        self._indent = "  " * depth
        self._detail = ""
        self._started_at = time.monotonic()

    def note(self, detail: str) -> None:
        """Show the newest detail next to the elapsed time."""
        self._detail = detail.strip().splitlines()[-1] if detail.strip() else ""

    def running_line(self, width: int) -> Text:
        elapsed = time.monotonic() - self._started_at
        frame = SPINNER[int(elapsed * FRAMES_PER_SECOND) % len(SPINNER)]
        line = Text.assemble(
            (f" {self._indent}{frame} ", "cyan"),
            self._action,
            (f"  {clock(elapsed)}", "bright_black"),
        )
        if self._detail:
            line.append(f"  {self._detail}", style="bright_black")
        line.truncate(max(width - 1, 20), overflow="ellipsis")
        return line

    def end_line(self, mark: str, color: str) -> Text:
        elapsed = time.monotonic() - self._started_at
        return Text.assemble(
            (f" {self._indent}{mark} ", color),
            self._action,
            (f"  {elapsed:.1f} s", "bright_black"),
        )


class DistinctLines(Lines):
    """Progress as lines, without notes that repeat the previous one."""

    _previous_detail = ""

    def note(self, detail: str) -> None:
        """Print the detail if it differs from the previous one."""
        if detail != self._previous_detail:
            self._previous_detail = detail
            super().note(detail)


def progress() -> Progress:
    """Return progress for standard error: drawn on a terminal, otherwise as lines."""
    return Terminal() if messages.is_terminal else DistinctLines()
