"""How goodput, the workers' seconds and what restarting would have cost look on a terminal.

One row for each name of the accounting, in words, with its bar; one bar for each worker, of four
parts. The parts have glyphs that tell them apart without colour.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everstep.cli.seconds import Goodput, RestartEstimate, WorkerSeconds, total
from everstep.elastic.accounting import Name

TRAINING, WORK, CHANGE, BEFORE = (
    ("█", "green", "steps"),
    ("▓", "cyan", "evaluation and saving"),
    ("▒", "yellow", "changes of the group"),
    ("░", "bright_black", "before joining"),
)
"""The four parts of a worker's life: glyph, colour, and what to call it."""

PARTS = (TRAINING, WORK, CHANGE, BEFORE)

WORDS = {
    Name.COMPUTE: ("computing", TRAINING),
    Name.EXCHANGE: ("summing gradients", TRAINING),
    Name.DATA: ("reading samples", TRAINING),
    Name.EVALUATION: ("evaluating", WORK),
    Name.CHECKPOINT: ("saving", WORK),
    Name.DETECT: ("waiting for the lost", CHANGE),
    Name.FORM: ("forming the group", CHANGE),
    Name.COPY: ("copying state", CHANGE),
    Name.REDO: ("work done again", CHANGE),
    Name.START_UP: ("starting up", BEFORE),
    Name.IDLE: ("waiting to join", BEFORE),
}
"""What each name of the accounting is called, and the part it belongs to; in the order shown."""

ESTIMATED = "the estimate is a model's, from costs of torchrun's etcd backend: `--json` lists them"

BAR_COLUMNS = 40
COLUMNS_SHOWN = 4
"""With more workers than these the table has none of their own columns."""

NAME_COLUMNS = 10
"""Of a worker's name its end is shown, which tells workers apart."""

WORKERS_SHOWN = 8
"""Of more workers than these only so many have a bar."""


def seconds_screen(
    goodput: Goodput,
    workers: Sequence[WorkerSeconds],
    estimate: RestartEstimate | None,
    width: int,
) -> RenderableType:
    """All that is known of a run's time."""
    parts: list[RenderableType] = [_goodput_lines(goodput, estimate)]
    if estimate:
        parts.append(Text(ESTIMATED, style="bright_black"))
    if workers:
        parts += [Text(), _names_table(workers, width), Text(), *_lives(workers, width)]
    return Group(*parts)


def _goodput_lines(goodput: Goodput, estimate: RestartEstimate | None) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    table.add_column("goodput", justify="right")
    table.add_column("of workers' time", justify="right")
    table.add_column("lost to changes", justify="right")
    table.add_column("")
    of_workers = "" if goodput.worker_share is None else f"{goodput.worker_share:.3f}"
    lost = f"{estimate.live_lost_seconds:,.1f} s" if estimate else ""
    table.add_row(Text(f"{goodput.share:.3f}", style="bold green"), of_workers, lost, "this run")
    if estimate:
        table.add_row(
            Text(f"{estimate.goodput:.3f}", style="yellow"),
            "",
            f"{estimate.lost_seconds:,.1f} s",
            f"estimated: workers restart at each of {estimate.changes} changes",
        )
    return table


def _names_table(workers: Sequence[WorkerSeconds], width: int) -> Table:
    """One row a name: seconds of all, each worker's where there are few, and a bar, the longest as long as may be."""
    spent = total(workers)
    whole, most = sum(spent.values()) or 1.0, max(spent.values(), default=1.0) or 1.0
    each = workers if len(workers) <= COLUMNS_SHOWN else ()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", pad_edge=False)
    table.add_column("seconds", no_wrap=True)
    for header in ("all", *(_end_of(worker.worker) for worker in each), "share"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("")
    columns = min(BAR_COLUMNS, max(width - 42 - (NAME_COLUMNS + 2) * len(each), 5))
    for name, (words, (glyph, colour, _)) in WORDS.items():
        if seconds := spent.get(name, 0.0):
            bar = Text(glyph * max(round(columns * seconds / most), 1), style=colour)
            own = (f"{worker.seconds.get(name, 0.0):,.1f}" for worker in each)
            table.add_row(words, f"{seconds:,.1f}", *own, f"{seconds / whole:.1%}", bar)
    return table


def _end_of(name: str) -> str:
    """The last whole words of a worker's name that there is room for: `worker-0`."""
    end = name[-NAME_COLUMNS:]
    return end if end == name else end.partition("-")[2] or end


def _lives(workers: Sequence[WorkerSeconds], width: int) -> Iterable[RenderableType]:
    """A bar for each worker, as long as its life, and what the parts are."""
    longest = max(sum(worker.seconds.values()) for worker in workers) or 1.0
    label = max(len(worker.worker) for worker in workers)
    columns = max(width - label - 24, 10)
    for worker in workers[:WORKERS_SHOWN]:
        parts = _by_part(worker.seconds)
        whole = sum(worker.seconds.values())
        row = Text(f"{worker.worker:<{label}}  ", no_wrap=True)
        for (glyph, colour, _), cells in zip(PARTS, _cells(parts, columns / longest), strict=True):
            row.append(glyph * cells, style=colour)
        row.append(f"  {whole:,.0f} s", style="bright_black")
        row.append(f"  {parts[0] / whole:.1%}" if whole else "")
        yield row
    if len(workers) > WORKERS_SHOWN:
        yield Text(f"and {len(workers) - WORKERS_SHOWN} workers more", style="bright_black")
    legend = Text(" " * (label + 2))
    for glyph, colour, words in PARTS:
        legend.append(glyph * 2, style=colour).append(f" {words}   ", style="bright_black")
    yield legend


def _by_part(seconds: Mapping[str, float]) -> list[float]:
    return [
        sum(seconds.get(name, 0.0) for name, (_, of) in WORDS.items() if of is part)
        for part in PARTS
    ]


def _cells(parts: Sequence[float], per_second: float) -> list[int]:
    """Cells for each part; rounding never adds up."""
    ends = [round(end * per_second) for end in accumulate(parts)]
    return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
