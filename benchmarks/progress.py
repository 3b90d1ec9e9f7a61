"""Progress display of a benchmark with many rounds.

It is updated only between two rounds, so that it does not disturb the measurement. It uses standard
error; standard output stays free for results.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

LINE_INTERVAL_SECONDS = 30.0  # interval of progress lines in a log

Round = TypeVar("Round")


def track(rounds: Iterable[Round], title: str, count: int) -> Iterator[Round]:
    """Yield each of `count` rounds; show a bar on a terminal, periodic lines in a log."""
    console = Console(stderr=True)
    return (
        track_with_bar(rounds, title, count, console)
        if console.is_terminal
        else track_with_lines(rounds, title, count)
    )


def track_with_bar(
    rounds: Iterable[Round], title: str, count: int, console: Console
) -> Iterator[Round]:
    """Yield the rounds with a progress bar, which is removed at the end."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        transient=True,
        auto_refresh=False,
        redirect_stdout=sys.stdout.isatty(),  # results in a file stay there
    ) as bar:
        task = bar.add_task(title, total=count)
        bar.refresh()
        for item in rounds:
            yield item
            bar.update(task, advance=1, refresh=True)


def track_with_lines(rounds: Iterable[Round], title: str, count: int) -> Iterator[Round]:
    """Yield the rounds with progress lines on standard error."""
    started_at = reported_at = time.monotonic()
    for completed, item in enumerate(rounds):
        now = time.monotonic()
        if completed and now - reported_at >= LINE_INTERVAL_SECONDS:
            reported_at = now
            remaining_seconds = (now - started_at) / completed * (count - completed)
            print(
                f"{title}: {completed} of {count}, about {remaining_seconds:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
        yield item
