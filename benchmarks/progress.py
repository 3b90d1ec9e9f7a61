"""How a benchmark of many rounds tells whoever waits how far it is.

Drawn between two rounds and never within one, so that what is measured is left alone; standard output stays
free for results.
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

LINE_EVERY_SECONDS = 30.0  # in a log

Round = TypeVar("Round")


def shown(rounds: Iterable[Round], what: str, count: int) -> Iterator[Round]:
    """Each of `count` rounds, with a bar on a terminal and a line now and then in a log."""
    console = Console(stderr=True)
    return (
        drawn(rounds, what, count, console) if console.is_terminal else written(rounds, what, count)
    )


def drawn(rounds: Iterable[Round], what: str, count: int, console: Console) -> Iterator[Round]:
    """With a bar, that is gone at the end."""
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
        task = bar.add_task(what, total=count)
        bar.refresh()
        for one in rounds:
            yield one
            bar.update(task, advance=1, refresh=True)


def written(rounds: Iterable[Round], what: str, count: int) -> Iterator[Round]:
    """With lines on standard error."""
    began = said = time.monotonic()
    for done, one in enumerate(rounds):
        now = time.monotonic()
        if done and now - said >= LINE_EVERY_SECONDS:
            said, left = now, (now - began) / done * (count - done)
            print(
                f"{what}: {done} of {count}, about {left:.0f} s left", file=sys.stderr, flush=True
            )
        yield one
