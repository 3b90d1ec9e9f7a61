"""Screens of a training run: the live view and the printed report.

They are functions from values to rich renderables, so that pictures in the docs and tests come from the same code as
the terminal. Every state has its own glyph, so that states differ without color.
"""

from collections.abc import Sequence, Set

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from everstep.catalog.plurals import amount
from everstep.cli.durations import clock
from everstep.cli.report.eta import RECENT_STEPS, remaining_seconds
from everstep.cli.report.goodput_screen import seconds_screen
from everstep.cli.report.incidents import CapacityEffect, Incident, capacity_incidents
from everstep.cli.report.money import Money
from everstep.cli.report.move_screen import moves_table, zones_text
from everstep.cli.report.report import Report, WorldSize
from everstep.cli.report.run_record import ARRIVALS, RunRecord, StepRecord
from everstep.cli.report.spending_screen import spending_screen
from everstep.cli.report.stalls import slow_nodes_table
from everstep.cli.report.status import Status, display_end, status_of
from everstep.cli.report.timeline import NodeState, node_timelines, span, stalled_since, time_cells

GLYPHS = {
    NodeState.TRAINING: ("█", "green"),
    NodeState.REGROUPING: ("▒", "yellow"),
    NodeState.GONE: ("╌", "red"),
    NodeState.WAITING: ("·", "bright_black"),
}
"""Glyph and color of each state."""

EFFECT_COLORS = {
    CapacityEffect.LOSS: "red",
    CapacityEffect.ARRIVAL: "green",
    CapacityEffect.NOTE: "yellow",
}

MAX_SIZES = 8
"""Maximum number of group sizes that the report lists."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_AXIS_MARKS = 4


# --- timeline -----------------------------------------------------------------------------------


def timeline(run: RunRecord, now: float, width: int) -> RenderableType:
    """Return one row for each node, one for the size of the group, and a time axis."""
    timelines = node_timelines(run, now)
    if not timelines:
        return Text("No worker has started yet.", style="bright_black")
    start, end = span(run, now)
    label_width = max(len("workers"), *(len(line.node) for line in timelines))
    columns = max(width - label_width - 2, 10)
    state_rows = [time_cells(line.segments, start, end, columns) for line in timelines]
    rows = [
        _row(line.node, row, label_width) for line, row in zip(timelines, state_rows, strict=True)
    ]
    rows.append(_sizes_row(run, start, end, label_width, columns))
    rows.append(_axis(end - start, label_width, columns))
    rows.append(_legend({state for row in state_rows for state in row}, label_width))
    return Group(*rows)


def _row(node: str, states: Sequence[NodeState], label_width: int) -> Text:
    row = Text(f"{node:<{label_width}}  ", no_wrap=True)
    for state in states:
        glyph, color = GLYPHS[state]
        row.append(glyph, style=color)
    return row


def _sizes_row(run: RunRecord, start: float, end: float, label_width: int, columns: int) -> Text:
    row = Text(f"{'workers':<{label_width}}  ", style="bright_black", no_wrap=True)
    sizes = [step.world_size for step in run.steps]
    largest, column_seconds = max(sizes, default=1), (end - start) / columns
    index = 0
    current = 0
    for column in range(columns):
        column_end = start + (column + 1) * column_seconds
        smallest = current
        while index < len(run.steps) and run.steps[index].at < column_end:
            current = run.steps[index].world_size
            smallest = min(smallest, current) if smallest else current
            index += 1
        row.append(_height(smallest or current, largest), style="cyan")
    return row


def _height(value: int, maximum: int) -> str:
    """Return a block whose height is the value's share of the maximum."""
    return _BLOCKS[round((len(_BLOCKS) - 1) * value / maximum)] if value else " "


def _axis(seconds: float, label_width: int, columns: int) -> Text:
    """Return marks of elapsed time for the row below the timelines; the last mark is at its end."""
    marks = [clock(seconds * mark / _AXIS_MARKS) for mark in range(_AXIS_MARKS + 1)]
    row = [" "] * columns
    for index, mark in enumerate(marks):
        column = min(round(columns * index / _AXIS_MARKS), columns - len(mark))
        row[column : column + len(mark)] = mark
    return Text(" " * (label_width + 2) + "".join(row), style="bright_black", no_wrap=True)


def _legend(states: Set[NodeState], label_width: int) -> Text:
    row = Text(" " * (label_width + 2))
    for state, (glyph, color) in GLYPHS.items():
        if state in states:
            row.append(glyph * 2, style=color)
            row.append(f" {state.value}   ", style="bright_black")
    return row


# --- report -------------------------------------------------------------------------------------


def report_screen(
    report: Report, run: RunRecord, now: float, width: int, cost: Money | None = None
) -> RenderableType:
    """Return the whole report, as `everstep report` prints it; `cost` is the cost of the run, if it is known."""
    title = _title(report, stopped=status_of(run, now) is Status.STOPPED)
    parts: list[RenderableType] = [title, Text(), _figures(report), Text()]
    if incidents := capacity_incidents(run, report.events):
        parts += [_events_table(incidents, report.started_at or 0.0), Text()]
    if report.moves:
        parts += [moves_table(report.moves, report.started_at or 0.0), Text()]
    if report.slow_nodes:
        parts += [slow_nodes_table(report.slow_nodes, report.started_at or 0.0), Text()]
    if cost and (zones_line := zones_text(cost)):
        parts += [Text(zones_line), Text()]
    if cost and (spending := spending_screen(cost)):
        parts += [spending, Text()]
    parts.append(timeline(run, display_end(run, now), width))
    if report.goodput:
        screen = seconds_screen(report.goodput, report.seconds, report.restart_estimate, width)
        parts += [Text(), screen]
    return Group(*parts)


def _title(report: Report, *, stopped: bool = False) -> Text:
    title = Text()
    title.append(report.job or "no training yet", style="bold")
    if report.model:
        title.append(f"  {report.model} on {report.dataset}")
    if report.finished:
        title.append("  finished", style="bold green")
    elif stopped:
        title.append("  stopped", style="bold red")
    elif report.steps:
        title.append("  training", style="bold yellow")
    return title


def _figures(report: Report) -> Table:
    table = Table.grid(padding=(0, 3))
    names = ("accuracy", "steps", "duration", "images/s", "with pauses", "workers")
    table.add_row(*(Text(name, style="bright_black") for name in names))
    table.add_row(
        Text(_accuracy_text(report.accuracy), style="bold"),
        f"{report.steps}/{report.total_steps}" if report.total_steps else str(report.steps),
        clock(report.duration_seconds),
        _rate(report.images_per_second),
        _rate(report.images_per_second_overall),
        _sizes(report.world_sizes),
    )
    return table


def _sizes(sizes: Sequence[WorldSize]) -> str:
    """Return the group's sizes in order; if there are many, only the first and the last sizes."""
    sizes_text = [str(size.world_size) for size in sizes]
    if len(sizes_text) > MAX_SIZES:
        half = MAX_SIZES // 2
        sizes_text = [*sizes_text[:half], "…", *sizes_text[-half:]]
    return " → ".join(sizes_text) or "none"


def _events_table(incidents: Sequence[Incident], training_start: float) -> Table:
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="bright_black", pad_edge=False)
    table.add_column("at", justify="right")
    table.add_column("event", no_wrap=True)
    table.add_column("next step after", justify="right")
    table.add_column("steps lost", justify="right")
    table.add_column("joined after", justify="right")
    for incident in incidents:
        color = EFFECT_COLORS[incident.effect]
        table.add_row(
            clock(incident.at - training_start),
            Text.assemble((incident.kind, color), f" {incident.node or incident.subject}"),
            _wait_text(incident.seconds_to_next_step),
            _steps_lost_text(incident),
            "" if incident.seconds_to_join is None else _wait_text(incident.seconds_to_join),
        )
    return table


def _steps_lost_text(incident: Incident) -> str:
    """Return the repeated steps; dots while training has not continued, empty if only journals record the incident."""
    if incident.steps_lost is not None:
        return str(incident.steps_lost)
    return "..." if incident.seconds_to_next_step is None else ""


def _wait_text(value: float | None) -> str:
    """Return a wait in seconds; dots while it continues."""
    return "..." if value is None else f"{value:.2f} s"


def _accuracy_text(value: float | None) -> str:
    return "not yet" if value is None else f"{value:.4f}"


def _rate(value: float | None) -> str:
    return "not yet" if value is None else f"{value:,.0f}"


def incident_sentence(incident: Incident) -> str:
    """Return one incident and its cost as a line of text."""
    subject = f"{incident.kind} {incident.node or incident.subject}"
    if incident.seconds_to_next_step is None:
        return f"{subject}: waiting"
    if incident.steps_lost is None:
        return f"{subject}: next step after {_wait_text(incident.seconds_to_next_step)}"
    if incident.kind in ARRIVALS and incident.seconds_to_join is None:
        return f"{subject}: its worker has not joined yet"
    steps_lost = f"{amount(incident.steps_lost, 'step')} lost"
    if incident.kind in ARRIVALS and incident.seconds_to_join is not None:
        pause, join = (
            _wait_text(incident.seconds_to_next_step),
            _wait_text(incident.seconds_to_join),
        )
        return f"{subject}: joined after {join}, the others paused {pause}, {steps_lost}"
    return f"{subject}: next step after {_wait_text(incident.seconds_to_next_step)}, {steps_lost}"


# --- live view ----------------------------------------------------------------------------------


def follow_screen(
    report: Report,
    run: RunRecord,
    now: float,
    width: int,
    cost: str = "",
    state: Sequence[tuple[str, str]] = (),
) -> RenderableType:
    """Return the live view of a training run.

    Args:
        report: the report.
        run: its run.
        now: Unix time.
        width: characters per row.
        cost: the cost so far as text; empty if unknown.
        state: names and values of the controller's report on the job.
    """
    title = _title(report)
    if (stalled_at := stalled_since(run)) is not None:
        title.append(f"  forming a new group for {max(now - stalled_at, 0):.0f} s", style="yellow")
    parts: list[RenderableType] = [title, Text(), _bar(report, run, width)]
    parts.append(_now_line(report, run, cost))
    parts += [_figure(name, value) for name, value in state]
    parts += [Text(), timeline(run, now, width), Text()]
    if incidents := capacity_incidents(run, report.events):
        parts.append(_events_table(incidents, report.started_at or 0.0))
    if report.moves:
        parts += [Text(), moves_table(report.moves, report.started_at or 0.0)]
    if report.slow_nodes:
        parts += [Text(), slow_nodes_table(report.slow_nodes, report.started_at or 0.0)]
    return Group(*parts)


def _bar(report: Report, run: RunRecord, width: int) -> Table:
    is_complete = report.steps == report.total_steps and report.finished
    start_entry = run.newest_start
    epochs = start_entry.number("epochs") if start_entry else 0
    epoch = run.steps[-1].epoch if run.steps else 0
    table = Table.grid(padding=(0, 2))
    table.add_row(
        ProgressBar(
            total=max(report.total_steps, 1),
            completed=report.steps,
            width=max(min(width - 44, 60), 10),
            complete_style="green" if is_complete else "cyan",
            finished_style="green",
        ),
        Text.assemble(("step ", "bright_black"), f"{report.steps}/{report.total_steps or '?'}"),
        Text.assemble(("epoch ", "bright_black"), f"{epoch}/{epochs or '?'}"),
    )
    return table


def _now_line(report: Report, run: RunRecord, cost: str) -> Table:
    recent_steps = run.steps[-RECENT_STEPS:]
    table = Table.grid(padding=(0, 3))
    loss = run.steps[-1].loss if run.steps else None
    figures = [
        _figure("elapsed", clock(report.duration_seconds)),
        _figure("left", time_left(run)),
        _figure("images/s", _rate(recent_throughput(recent_steps))),
        _figure("loss", "not yet" if loss is None else f"{loss:.3f}"),
        _figure("accuracy", _accuracy_text(report.accuracy)),
    ]
    table.add_row(*figures, *([_figure("cost", cost)] if cost else []))
    return table


def _figure(name: str, value: str) -> Text:
    return Text.assemble((f"{name} ", "bright_black"), (value, "bold"))


def recent_throughput(steps: Sequence[StepRecord]) -> float | None:
    """Return the images per second over the last steps; None before the first."""
    busy_seconds = sum(step.seconds for step in steps)
    return sum(step.images for step in steps) / busy_seconds if busy_seconds > 0 else None


def time_left(run: RunRecord) -> str:
    """Return the remaining time as text."""
    seconds = remaining_seconds(run)
    return "not yet known" if seconds is None else clock(seconds)
