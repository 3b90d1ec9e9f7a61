"""Screen of goodput, the workers' seconds, and the estimate for a design that restarts.

One row with a bar for each activity, and one bar of four parts for each of the first workers. The parts have
different glyphs, so they are readable without color.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everstep.cli.report.goodput import Goodput, RestartEstimate, WorkerSeconds, total
from everstep.elastic.accounting.time_account import Activity

TRAINING, OVERHEAD, CHANGE, BEFORE_JOINING = (
    ("█", "green", "steps"),
    ("▓", "cyan", "evaluation and saving"),
    ("▒", "yellow", "changes of the group"),
    ("░", "bright_black", "before joining"),
)
"""Glyph, color and name of the four parts of a worker's time."""

PARTS = (TRAINING, OVERHEAD, CHANGE, BEFORE_JOINING)

ACTIVITY_LABELS = {
    Activity.COMPUTE: ("computing", TRAINING),
    Activity.EXCHANGE: ("summing gradients", TRAINING),
    Activity.DATA: ("reading samples", TRAINING),
    Activity.EVALUATION: ("evaluating", OVERHEAD),
    Activity.CHECKPOINT: ("saving", OVERHEAD),
    Activity.DETECT: ("detecting a loss", CHANGE),
    Activity.FORM: ("forming the group", CHANGE),
    Activity.COPY: ("copying state", CHANGE),
    Activity.REDO: ("work done again", CHANGE),
    Activity.START_UP: ("starting up", BEFORE_JOINING),
    Activity.IDLE: ("waiting to join", BEFORE_JOINING),
}
"""Text and part of each activity, in the order shown."""

ESTIMATE_NOTE = (
    "the estimate is from a model with costs of torchrun's etcd backend; `--json` lists them"
)

BAR_COLUMNS = 40
MAX_COLUMNS = 4
"""Maximum number of workers for which each worker has a column in the table."""

NAME_COLUMNS = 10
"""Characters of a worker's name, from its end, which differs between workers."""

MAX_BARS = 8
"""Maximum number of workers that have a bar."""


def seconds_screen(
    goodput: Goodput,
    workers: Sequence[WorkerSeconds],
    estimate: RestartEstimate | None,
    width: int,
) -> RenderableType:
    """Return goodput, the seconds by activity, and bars of at most MAX_BARS workers."""
    parts: list[RenderableType] = [_goodput_lines(goodput, estimate)]
    if estimate:
        parts.append(Text(ESTIMATE_NOTE, style="bright_black"))
    if workers:
        parts += [Text(), _activities_table(workers, width), Text(), *_worker_bars(workers, width)]
    return Group(*parts)


def _goodput_lines(goodput: Goodput, estimate: RestartEstimate | None) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    table.add_column("goodput", justify="right")
    table.add_column("of workers' time", justify="right")
    table.add_column("lost to changes", justify="right")
    table.add_column("")
    worker_share = "" if goodput.worker_share is None else f"{goodput.worker_share:.3f}"
    lost_seconds = f"{estimate.live_lost_seconds:,.1f} s" if estimate else ""
    table.add_row(
        Text(f"{goodput.share:.3f}", style="bold green"), worker_share, lost_seconds, "this run"
    )
    if estimate:
        table.add_row(
            Text(f"{estimate.goodput:.3f}", style="yellow"),
            "",
            f"{estimate.lost_seconds:,.1f} s",
            f"estimated: workers restart at each of {estimate.changes} changes",
        )
    return table


def _activities_table(workers: Sequence[WorkerSeconds], width: int) -> Table:
    """Return one row for each activity: total seconds, each worker's if there are few, and a bar."""
    totals = total(workers)
    total_seconds, longest = sum(totals.values()) or 1.0, max(totals.values(), default=1.0) or 1.0
    shown_workers = workers if len(workers) <= MAX_COLUMNS else ()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bright_black", pad_edge=False)
    table.add_column("seconds", no_wrap=True)
    for header in ("all", *(_end_of(worker.worker) for worker in shown_workers), "share"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("")
    columns = min(BAR_COLUMNS, max(width - 42 - (NAME_COLUMNS + 2) * len(shown_workers), 5))
    for activity, (label, (glyph, color, _)) in ACTIVITY_LABELS.items():
        if seconds := totals.get(activity, 0.0):
            bar = Text(glyph * max(round(columns * seconds / longest), 1), style=color)
            cells = (f"{worker.seconds.get(activity, 0.0):,.1f}" for worker in shown_workers)
            table.add_row(label, f"{seconds:,.1f}", *cells, f"{seconds / total_seconds:.1%}", bar)
    return table


def _end_of(name: str) -> str:
    """Return the last whole words of a worker's name that fit: `worker-0`."""
    end = name[-NAME_COLUMNS:]
    begins_a_word = end == name or name[-NAME_COLUMNS - 1] == "-"
    return end if begins_a_word else end.partition("-")[2] or end


def _worker_bars(workers: Sequence[WorkerSeconds], width: int) -> Iterable[RenderableType]:
    """Yield bars of at most MAX_BARS workers, each as long as the worker's time, and a legend."""
    longest = max(sum(worker.seconds.values()) for worker in workers) or 1.0
    label_width = max(len(worker.worker) for worker in workers)
    columns = max(width - label_width - 24, 10)
    for worker in workers[:MAX_BARS]:
        parts = _group_by_part(worker.seconds)
        total_seconds = sum(worker.seconds.values())
        row = Text(f"{worker.worker:<{label_width}}  ", no_wrap=True)
        for (glyph, color, _), cells in zip(PARTS, _cells(parts, columns / longest), strict=True):
            row.append(glyph * cells, style=color)
        row.append(f"  {total_seconds:,.0f} s", style="bright_black")
        row.append(f"  {parts[0] / total_seconds:.1%}" if total_seconds else "")
        yield row
    if len(workers) > MAX_BARS:
        yield Text(f"and {len(workers) - MAX_BARS} more workers", style="bright_black")
    legend = Text(" " * (label_width + 2))
    for glyph, color, label in PARTS:
        legend.append(glyph * 2, style=color).append(f" {label}   ", style="bright_black")
    yield legend


def _group_by_part(seconds: Mapping[str, float]) -> list[float]:
    return [
        sum(
            seconds.get(activity, 0.0)
            for activity, (_, activity_part) in ACTIVITY_LABELS.items()
            if activity_part is part
        )
        for part in PARTS
    ]


def _cells(parts: Sequence[float], per_second: float) -> list[int]:
    """Return the cells of each part, rounded without an accumulated error."""
    ends = [round(end * per_second) for end in accumulate(parts)]
    return [end - begin for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
