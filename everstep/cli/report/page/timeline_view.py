"""The page's timeline: one lane for each node, the group's size, loss and accuracy over the same time axis."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from everstep.cli.durations import clock
from everstep.cli.report.incidents import CapacityEffect, Incident
from everstep.cli.report.page import chart
from everstep.cli.report.page.chart import Scale
from everstep.cli.report.page.markup import Html, element
from everstep.cli.report.page.model import Lane, ReportPage
from everstep.cli.report.page.words import event_label, percent
from everstep.cli.report.timeline import NodeState

LANE_HEIGHT = 36
BARS = {
    NodeState.TRAINING: (16, 18),
    NodeState.REGROUPING: (20, 10),
    NodeState.GONE: (24, 3),
    NodeState.WAITING: (24.5, 1),
}
"""Top and height of each state's bar in pixels: the height tells states apart without color."""

STATE_WORDS = {
    NodeState.TRAINING: "training",
    NodeState.REGROUPING: "forming a group or starting",
    NodeState.GONE: "gone",
    NodeState.WAITING: "no worker yet",
}

MARKS_PER_LANE = 40
"""Number of marks on one lane above which events that are close together share a mark."""

GLYPHS = {
    CapacityEffect.LOSS: "M-5 -5h10l-5 9z",
    CapacityEffect.ARRIVAL: "M-5 4h10l-5 -9z",
    CapacityEffect.NOTE: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
}

SIZES_HEIGHT, LOSS_HEIGHT, ACCURACY_HEIGHT = 64, 150, 110
TOP = 14
"""Pixels above a chart, for the label of its highest value."""


@dataclass(frozen=True)
class Mark:
    """A mark on a lane: one event, or several that are close together.

    Attributes:
        at: Unix time.
        numbers: positions of the events in the table.
        effect: effect of the most severe event.
        label: text for readers who cannot see the mark.
    """

    at: float
    numbers: tuple[int, ...]
    effect: CapacityEffect
    label: str


def timeline(page: ReportPage) -> Html:
    """Return all rows of the timeline."""
    nodes = [_lane(page, lane) for lane in page.lanes]
    node_names = {lane.timeline.node for lane in page.lanes}
    others = [
        (number, incident)
        for number, incident in enumerate(page.incidents, 1)
        if incident.node not in node_names
    ]
    if others:
        marks = marks_of(others, page.start, page.seconds)
        nodes.append(_row(page, "Other events", "", LANE_HEIGHT // 2, (), _glyphs(page, marks, 8)))
    return element("div", *nodes, axis(page), *_charts(page), class_="timeline", id="lanes")


def tenths(page: ReportPage, time: float) -> int:
    """Return the x coordinate of a time."""
    return round((time - page.start) * chart.TENTHS)


def position(page: ReportPage, time: float) -> str:
    """Return the x coordinate of a time in percent of the width."""
    return f"{100 * _share(time, page.start, page.seconds):.3f}%" if page.seconds else "0%"


def _share(time: float, start: float, seconds: float) -> float:
    """Return the position of a time on the timeline, 0 to 1: events after a run has stopped are at its end."""
    return min(max((time - start) / seconds, 0.0), 1.0) if seconds else 0.0


# --- nodes --------------------------------------------------------------------------------------


def _lane(page: ReportPage, lane: Lane) -> Html:
    node = lane.timeline.node
    events = [
        (number, incident)
        for number, incident in enumerate(page.incidents, 1)
        if incident.node == node
    ]
    marks = marks_of(events, page.start, page.seconds)
    bars = [_bars(page, lane, state) for state in BARS if lane.seconds[state]]
    share = lane.seconds[NodeState.TRAINING] / page.seconds if page.seconds else 0.0
    return _row(page, node, percent(share), LANE_HEIGHT, bars, _glyphs(page, marks, 8))


def _bars(page: ReportPage, lane: Lane, state: NodeState) -> Html:
    pieces = (piece for piece in lane.timeline.segments if piece.state is state)
    spans = ((tenths(page, piece.start), tenths(page, piece.end)) for piece in pieces)
    top, height = BARS[state]
    line = chart.bars_path(spans, top + height / 2)
    return element("path", class_=f"bars {state.value}", d=line, stroke_width=height)


def marks_of(
    events: Sequence[tuple[int, Incident]], start: float, seconds: float
) -> tuple[Mark, ...]:
    """Return the marks of numbered events.

    If there are more than `MARKS_PER_LANE`, the time is divided into that many parts, and events in one part share a
    mark.
    """
    groups: dict[int, list[tuple[int, Incident]]] = {}
    for number, incident in events:
        # An event at the end of the run is in the last part.
        part = min(int(_share(incident.at, start, seconds) * MARKS_PER_LANE), MARKS_PER_LANE - 1)
        groups.setdefault(part, []).append((number, incident))
    if len(events) <= MARKS_PER_LANE:
        groups = {number: [(number, incident)] for number, incident in events}
    return tuple(_mark(group, start) for group in groups.values())


def _mark(group: Sequence[tuple[int, Incident]], start: float) -> Mark:
    effects = {incident.effect for _, incident in group}
    label = event_label(group[0][1], start)
    if len(group) > 1:
        first, last = clock(group[0][1].at - start), clock(group[-1][1].at - start)
        label = f"{len(group)} events from {first} to {last}, the first: {label}"
    return Mark(
        at=group[0][1].at,
        numbers=tuple(number for number, _ in group),
        effect=next(effect for effect in CapacityEffect if effect in effects),
        label=label,
    )


def _glyphs(page: ReportPage, marks: Iterable[Mark], y: float) -> Iterator[Html]:
    for mark in marks:
        glyph = element("path", d=GLYPHS[mark.effect])
        stem = element("path", class_="stem", d=f"M0 {y - 4:g}V{LANE_HEIGHT - y - 2:g}")
        area = element("rect", class_="area", x=-9, y=-9, width=18, height=LANE_HEIGHT - 4)
        yield element(
            "a",
            element("title", mark.label),
            element(
                "svg", area, stem, glyph,
                x=position(page, mark.at), y=y, overflow="visible", data_t=tenths(page, mark.at),
            ),
            href=f"#event-{mark.numbers[0]}",
            class_=f"mark {mark.effect.value}",
            aria_label=mark.label,
        )  # fmt: skip


def _row(
    page: ReportPage, name: str, note: str, height: int, shapes: Iterable[Html], foreground: Iterable[Html],
    background: Iterable[Html] = (), kind: str = "lane",
) -> Html:  # fmt: skip
    """Return a row: a name, a plot whose shapes are stretched to its width, and a note."""
    width = max(round(page.seconds * chart.TENTHS), 1)
    stretched = element(
        "svg", *shapes,
        class_="stretched", width="100%", height=height,
        viewBox=f"0 0 {width} {height}", preserveAspectRatio="none", aria_hidden="true",
    )  # fmt: skip
    cursor = element("line", class_="cursor", x1="0", x2="0", y1="0", y2="100%")
    plot = element(
        "svg", *background, stretched, cursor, *foreground,
        class_="plot", width="100%", height=height, role="group", aria_label=name,
    )  # fmt: skip
    return element(
        "div",
        element("div", name, class_="row-name"),
        element("div", plot, class_="row-plot"),
        element("div", note, class_="row-note"),
        class_=f"row {kind}",
    )


def axis(page: ReportPage) -> Html:
    """Return the row with the times."""
    ticks = chart.time_ticks(page.seconds)
    labels = [
        element(
            "text", clock(tick),
            x=position(page, page.start + tick), y=14, data_t=tick * chart.TENTHS,
            class_="tick first" if tick == 0 else "tick",
        )
        for tick in ticks
        if not page.seconds or tick <= 0.97 * page.seconds
    ]  # fmt: skip
    plot = element("svg", *labels, class_="plot", width="100%", height=20, id="axis")
    return element(
        "div",
        element("div", class_="row-name"),
        element("div", plot, class_="row-plot"),
        element("div", class_="row-note"),
        class_="row axis",
        aria_hidden="true",
    )


# --- charts -------------------------------------------------------------------------------------


def _charts(page: ReportPage) -> Iterator[Html]:
    if page.report.world_sizes:
        yield _sizes_chart(page)
    if len(page.losses) > 1:
        yield _loss_chart(page)
    if page.evaluations:
        yield _accuracy_chart(page)


@dataclass(frozen=True)
class _Axis:
    """The values of a chart: a scale, the values that have a line, and their text."""

    scale: Scale
    ticks: Sequence[float]
    text: Callable[[float], str]

    def y(self, value: float) -> float:
        """Return the pixels of a value from the chart's top."""
        return TOP + self.scale.y(value)


def _chart(
    page: ReportPage, name: str, note: str, height: int, values: _Axis, shapes: Iterable[Html],
    dots: Iterable[Html] = (),
) -> Html:  # fmt: skip
    lines = (
        element("line", class_="grid", x1="0", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}")
        for y in map(values.y, values.ticks)
    )
    labels = (
        element("text", values.text(value), class_="value", x="2", y=f"{values.y(value) - 3:.1f}")
        for value in values.ticks
    )
    return _row(page, name, note, height, shapes, [*labels, *dots], lines, "chart")


def _sizes_chart(page: ReportPage) -> Html:
    sizes = page.report.world_sizes
    largest = max(size.world_size for size in sizes)
    values = _Axis(Scale(0, largest, SIZES_HEIGHT - TOP - 2), (largest, 0), "{:g}".format)
    points = [(tenths(page, size.at), values.y(size.world_size)) for size in sizes]
    line = chart.step_path(points, tenths(page, page.end))
    area = f"{line}V{values.y(0):g}H{points[0][0]}z"
    shapes = [element("path", class_="area-fill", d=area), element("path", class_="curve", d=line)]
    return _chart(page, "World size", str(sizes[-1].world_size), SIZES_HEIGHT, values, shapes)


def _loss_chart(page: ReportPage) -> Html:
    losses = [loss for _, loss in page.losses]
    low, high = min(0.0, *losses), max(losses)
    ticks = chart.value_ticks(low, high if high > low else low + 1)
    scale = Scale(ticks[0], ticks[-1], LOSS_HEIGHT - TOP - 2)
    values = _Axis(scale, ticks, "{:g}".format)
    points = chart.thin([(tenths(page, time), values.y(loss)) for time, loss in page.losses])
    curve = element("path", class_="curve", d=chart.line_path(points))
    shapes = [_pauses(page, LOSS_HEIGHT), curve]
    return _chart(page, "Loss", f"{losses[-1]:.3f}", LOSS_HEIGHT, values, shapes)


def _accuracy_chart(page: ReportPage) -> Html:
    high = max(accuracy for _, accuracy in page.evaluations)
    ticks = chart.value_ticks(0.0, min(max(high, 0.1), 1.0), 3)
    scale = Scale(ticks[0], ticks[-1], ACCURACY_HEIGHT - TOP - 2)
    values = _Axis(scale, ticks, "{:.0%}".format)
    points = [(tenths(page, time), values.y(accuracy)) for time, accuracy in page.evaluations]
    curve = element("path", class_="curve accuracy", d=chart.line_path(chart.thin(points)))
    dot_points = page.evaluations if len(points) <= MARKS_PER_LANE else page.evaluations[-1:]
    dots = [
        element(
            "svg", element("circle", r=4, class_="dot"),
            x=position(page, time), y=f"{values.y(accuracy):g}", overflow="visible", data_t=tenths(page, time),
        )
        for time, accuracy in dot_points
    ]  # fmt: skip
    last = percent(page.evaluations[-1][1])
    shapes = [_pauses(page, ACCURACY_HEIGHT), curve]
    return _chart(page, "Accuracy", last, ACCURACY_HEIGHT, values, shapes, dots)


def _pauses(page: ReportPage, height: int) -> Html:
    """Return bands behind a curve where no step was completed."""
    spans = ((tenths(page, begin), tenths(page, end)) for begin, end in page.pauses)
    line = chart.bars_path(spans, (height + TOP - 2) / 2)
    return element("path", class_="bars pause", d=line, stroke_width=height - TOP - 2)


def legend(page: ReportPage) -> Html:
    """Return the meaning of the bars and marks that the timeline uses."""
    shown_states = [state for state in BARS if any(lane.seconds[state] for lane in page.lanes)]
    entries = [_state_key(state) for state in shown_states]
    effects = {incident.effect for incident in page.incidents}
    texts = {
        CapacityEffect.LOSS: "capacity lost",
        CapacityEffect.ARRIVAL: "capacity gained",
        CapacityEffect.NOTE: "other event",
    }
    entries += [_mark_key(effect, text) for effect, text in texts.items() if effect in effects]
    return element("ul", *entries, class_="legend")


def _state_key(state: NodeState) -> Html:
    top, height = BARS[state]
    swatch = element("rect", class_=state.value, x=0, y=top - 14, width=22, height=height)
    picture = element("svg", swatch, width=22, height=22, aria_hidden="true")
    return element("li", picture, STATE_WORDS[state])


def _mark_key(effect: CapacityEffect, text: str) -> Html:
    glyph = element(
        "g",
        element("path", d=GLYPHS[effect]),
        class_=f"mark {effect.value}",
        transform="translate(8 11)",
    )
    return element("li", element("svg", glyph, width=16, height=22, aria_hidden="true"), text)
