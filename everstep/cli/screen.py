"""What a training looks like on a terminal: the live view and the printed report.

Functions from values to rich renderables, so that the pictures in the docs and the tests are
drawn by the same code as the terminal. Without colour every state still has a glyph of its own.
"""

from collections.abc import Sequence, Set

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from everstep.cli.report import Recovery, Report, WorldSize
from everstep.cli.run import ARRIVALS, Run, Step
from everstep.cli.seconds_screen import seconds_screen
from everstep.cli.timeline import State, cells, span, stalled_since, strips

GLYPHS = {
    State.TRAINING: ("█", "green"),
    State.REGROUPING: ("▒", "yellow"),
    State.GONE: ("╌", "red"),
    State.WAITING: ("·", "bright_black"),
    State.DONE: ("█", "bright_black"),
}
"""How a state is drawn: a glyph that tells it apart without colour, and its colour."""

RECENT_STEPS = 20
"""Steps over which the live view averages, so that the figure is steady and still current."""

SIZES_SHOWN = 8
"""Sizes of the group that fit beside the other figures."""

_LADDER = "▁▂▃▄▅▆▇█"
_AXIS_MARKS = 4


def clock(seconds: float) -> str:
    """A duration as minutes and seconds, with hours once there are any."""
    whole = max(round(seconds), 0)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# --- timeline -----------------------------------------------------------------------------------


def timeline(run: Run, now: float, width: int) -> RenderableType:
    """One row a node, one for the size of the group, and the time below."""
    lives = strips(run, now)
    if not lives:
        return Text("No worker has entered training yet.", style="bright_black")
    start, end = span(run, now)
    label = max(len("workers"), *(len(life.node) for life in lives))
    columns = max(width - label - 2, 10)
    shown = [cells(life.segments, start, end, columns) for life in lives]
    rows = [_row(life.node, row, label) for life, row in zip(lives, shown, strict=True)]
    rows.append(_sizes_row(run, start, end, label, columns))
    rows.append(_axis(end - start, label, columns))
    rows.append(_legend({state for row in shown for state in row}, label))
    return Group(*rows)


def _row(node: str, states: Sequence[State], label: int) -> Text:
    row = Text(f"{node:<{label}}  ", no_wrap=True)
    for state in states:
        glyph, colour = GLYPHS[state]
        row.append(glyph, style=colour)
    return row


def _sizes_row(run: Run, start: float, end: float, label: int, columns: int) -> Text:
    row = Text(f"{'workers':<{label}}  ", style="bright_black", no_wrap=True)
    sizes = [step.world_size for step in run.steps]
    most, size = max(sizes, default=1), (end - start) / columns
    index = 0
    current = 0
    for column in range(columns):
        until = start + (column + 1) * size
        fewest = current
        while index < len(run.steps) and run.steps[index].at < until:
            current = run.steps[index].world_size
            fewest = min(fewest, current) if fewest else current
            index += 1
        row.append(_height(fewest or current, most), style="cyan")
    return row


def _height(value: int, most: int) -> str:
    """A block as high as the value's share of the most."""
    return _LADDER[round((len(_LADDER) - 1) * value / most)] if value else " "


def _axis(seconds: float, label: int, columns: int) -> Text:
    """Marks of elapsed time under the strips, the last one at the end."""
    marks = [clock(seconds * mark / _AXIS_MARKS) for mark in range(_AXIS_MARKS + 1)]
    row = [" "] * columns
    for index, mark in enumerate(marks):
        place = min(round(columns * index / _AXIS_MARKS), columns - len(mark))
        row[place : place + len(mark)] = mark
    return Text(" " * (label + 2) + "".join(row), style="bright_black", no_wrap=True)


def _legend(seen: Set[State], label: int) -> Text:
    row = Text(" " * (label + 2))
    for state, (glyph, colour) in GLYPHS.items():
        if state in seen:
            row.append(glyph * 2, style=colour)
            row.append(f" {state.value}   ", style="bright_black")
    return row


# --- report -------------------------------------------------------------------------------------


def report_screen(report: Report, run: Run, now: float, width: int) -> RenderableType:
    """The whole report, as `everstep report` prints it."""
    parts: list[RenderableType] = [_title(report), Text(), _figures(report), Text()]
    if report.events:
        parts += [_events_table(report.events, report.started_at or 0.0), Text()]
    parts.append(timeline(run, now, width))
    if report.goodput:
        screen = seconds_screen(report.goodput, report.seconds, report.restart_estimate, width)
        parts += [Text(), screen]
    return Group(*parts)


def _title(report: Report) -> Text:
    title = Text()
    title.append(report.job or "no training yet", style="bold")
    if report.model:
        title.append(f"  {report.model} on {report.dataset}")
    if report.finished:
        title.append("  finished", style="bold green")
    elif report.steps:
        title.append("  training", style="bold yellow")
    return title


def _figures(report: Report) -> Table:
    table = Table.grid(padding=(0, 3))
    names = ("accuracy", "steps", "duration", "images/s", "with pauses", "workers")
    table.add_row(*(Text(name, style="bright_black") for name in names))
    table.add_row(
        Text(_share(report.accuracy), style="bold"),
        f"{report.steps}/{report.total_steps}" if report.total_steps else str(report.steps),
        clock(report.duration_seconds),
        _rate(report.images_per_second),
        _rate(report.images_per_second_overall),
        _sizes(report.world_sizes),
    )
    return table


def _sizes(sizes: Sequence[WorldSize]) -> str:
    """The group's sizes in turn; of many only the first and the last."""
    said = [str(size.world_size) for size in sizes]
    if len(said) > SIZES_SHOWN:
        said = [*said[: SIZES_SHOWN // 2], "…", *said[-(SIZES_SHOWN // 2) :]]
    return " → ".join(said) or "none"


def _events_table(events: Sequence[Recovery], began: float) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    table.add_column("at", justify="right")
    table.add_column("event", no_wrap=True)
    table.add_column("next step after", justify="right")
    table.add_column("steps lost", justify="right")
    table.add_column("joined after", justify="right")
    for event in events:
        colour = "green" if event.kind in ARRIVALS else "red"
        table.add_row(
            clock(event.at - began),
            Text.assemble((event.kind, colour), f" {event.node}"),
            seconds(event.seconds_to_next_step),
            "..." if event.steps_lost is None else str(event.steps_lost),
            "" if event.seconds_to_join is None else seconds(event.seconds_to_join),
        )
    return table


def seconds(value: float | None) -> str:
    """A measured duration; dots while it is still going on."""
    return "..." if value is None else f"{value:.2f} s"


def _share(value: float | None) -> str:
    return "not yet" if value is None else f"{value:.4f}"


def _rate(value: float | None) -> str:
    return "not yet" if value is None else f"{value:,.0f}"


def event_sentence(event: Recovery) -> str:
    """One event and what it cost, as a line of text."""
    what = f"{event.kind} {event.node}"
    if event.seconds_to_next_step is None:
        return f"{what}: waiting"
    if event.kind in ARRIVALS and event.joined_at is None:
        return f"{what}: its worker has not joined yet"
    lost = f"{event.steps_lost} step{'s' if event.steps_lost != 1 else ''} lost"
    if event.kind in ARRIVALS and event.seconds_to_join is not None:
        pause, joined = seconds(event.seconds_to_next_step), seconds(event.seconds_to_join)
        return f"{what}: joined after {joined}, the others paused {pause}, {lost}"
    return f"{what}: next step after {seconds(event.seconds_to_next_step)}, {lost}"


# --- live view ----------------------------------------------------------------------------------


def follow_screen(report: Report, run: Run, now: float, width: int) -> RenderableType:
    """The live view of a training."""
    title = _title(report)
    if (stalled := stalled_since(run)) is not None:
        title.append(f"  forming a new group for {max(now - stalled, 0):.0f} s", style="yellow")
    parts: list[RenderableType] = [title, Text(), _bar(report, run, width)]
    parts += [_now_line(report, run), Text(), timeline(run, now, width), Text()]
    if report.events:
        parts.append(_events_table(report.events, report.started_at or 0.0))
    return Group(*parts)


def _bar(report: Report, run: Run, width: int) -> Table:
    done = report.steps == report.total_steps and report.finished
    head = run.newest_start
    epochs = head.number("epochs") if head else 0
    epoch = run.steps[-1].epoch if run.steps else 0
    table = Table.grid(padding=(0, 2))
    table.add_row(
        ProgressBar(
            total=max(report.total_steps, 1),
            completed=report.steps,
            width=max(min(width - 44, 60), 10),
            complete_style="green" if done else "cyan",
            finished_style="green",
        ),
        Text.assemble(("step ", "bright_black"), f"{report.steps}/{report.total_steps or '?'}"),
        Text.assemble(("epoch ", "bright_black"), f"{epoch}/{epochs or '?'}"),
    )
    return table


def _now_line(report: Report, run: Run) -> Table:
    recent = run.steps[-RECENT_STEPS:]
    table = Table.grid(padding=(0, 3))
    loss = run.steps[-1].loss if run.steps else None
    table.add_row(
        _figure("elapsed", clock(report.duration_seconds)),
        _figure("left", time_left(report, recent)),
        _figure("images/s", _rate(recent_throughput(recent))),
        _figure("loss", "not yet" if loss is None else f"{loss:.3f}"),
        _figure("accuracy", _share(report.accuracy)),
    )
    return table


def _figure(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ", "bright_black"), (value, "bold"))


def recent_throughput(recent: Sequence[Step]) -> float | None:
    """Images per second over the last steps, None before there are any."""
    busy = sum(step.seconds for step in recent)
    return sum(step.images for step in recent) / busy if busy > 0 else None


def time_left(report: Report, recent: Sequence[Step]) -> str:
    """How long the rest takes at the pace of the last steps."""
    if report.finished:
        return clock(0)
    busy = sum(step.seconds for step in recent)
    if not recent or not report.total_steps or busy <= 0:
        return "not yet known"
    return clock((report.total_steps - report.steps) * busy / len(recent))
