"""The page as one HTML document without external requests: `render` is the only function that others call."""

import hashlib
from base64 import b64encode
from importlib import metadata, resources

from everstep.cli.durations import clock
from everstep.cli.report.page import chart, moves_view, sections
from everstep.cli.report.page.markup import Html, data_block, element, join
from everstep.cli.report.page.model import ReportPage
from everstep.cli.report.page.timeline_view import STATE_WORDS, legend, tenths, timeline
from everstep.cli.report.page.verdict import verdict
from everstep.cli.report.page.words import percent, utc
from everstep.cli.report.status import Status
from everstep.cli.report.timeline import NodeState

INSPECTOR_POINTS = 4000
"""Maximum number of points of each series that the page's script can look up."""

MAX_TABLE_ROWS = 200


def render(page: ReportPage) -> str:
    """Return the page's HTML."""
    style, script = (_resource(name) for name in ("page.css", "page.js"))
    title = f"{page.report.job or 'No training'}: {verdict(page).headline}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element("a", "Skip to the events", href="#events", class_="skip"),
        element("main", *_main(page)),
        _footer(page),
        data_block("run", inspector_values(page)),
        element("script", Html(script)),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en').text}\n"


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy: this style and this script only, and no request at all."""
    return (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _main(page: ReportPage) -> list[Html | None]:
    run_verdict = verdict(page)
    header = element(
        "header",
        element("p", *_eyebrow(page), class_="eyebrow"),
        element("h1", run_verdict.headline),
        element("p", " ".join(run_verdict.sentences), class_="summary"),
    )
    if page.status is Status.NOT_STARTED:
        return [header]
    return [
        header,
        sections.figures(page),
        _timeline(page),
        sections.events(page),
        moves_view.moves(page),
        sections.goodput(page),
        sections.money(page),
        sections.workers(page),
    ]


def _eyebrow(page: ReportPage) -> list[Html | str | None]:
    report = page.report
    model = " on ".join(filter(None, (report.model, report.dataset)))
    parts: list[Html | str | None] = [element("strong", report.job or "training"), " · "]
    parts += [model, " · "] if model else []
    status = element(
        "span", page.status.value, class_=f"status {page.status.value.replace(' ', '-')}"
    )
    start_time = utc(report.started_at) if report.started_at else None
    return [*parts, status, " · " if start_time else None, start_time]


def _timeline(page: ReportPage) -> Html:
    if not page.lanes:
        return sections.section("timeline", "Timeline", element("p", "No worker has trained yet."))
    lead = (
        "One lane for each node; a taller bar means more work. Marks are events and link to the table. "
        "Percentages are shares of the time spent training."
    )
    return sections.section(
        "timeline",
        "Every node, every second",
        element("p", lead, class_="lead"),
        legend(page),
        _inspector(page),
        timeline(page),
        element("details", element("summary", "The timeline as tables"), *_tables(page)),
    )


def _inspector(page: ReportPage) -> Html:
    """Return the controls of the page's script, hidden until it runs."""
    slider = element(
        "input", type="range", id="second", min=0, max=max(int(page.seconds), 1), step=1, value=0
    )
    buttons = [
        element("button", text, type="button", id=identifier)
        for identifier, text in (
            ("zoom-in", "Zoom in"),
            ("zoom-out", "Zoom out"),
            ("zoom-all", "Whole run"),
        )
    ]
    return element(
        "div",
        element("label", "Second", for_="second"),
        slider,
        element("div", *buttons, class_="buttons", role="group", aria_label="Zoom the timeline"),
        element("output", id="reading", for_="second"),
        class_="inspector",
        id="inspector",
        hidden=True,
    )


def _tables(page: ReportPage) -> list[Html]:
    """Return the timeline's content as tables, for readers who cannot see it."""
    states = [state for state in NodeState if any(lane.seconds[state] for lane in page.lanes)]
    node_table = _table(
        "Seconds of each node by state",
        ["Node", *(STATE_WORDS[state] for state in states)],
        [
            [lane.timeline.node, *(f"{lane.seconds[state]:,.1f}" for state in states)]
            for lane in page.lanes
        ],
    )
    sizes = [(size.at, str(size.world_size)) for size in page.report.world_sizes]
    evaluations = [(time, percent(value)) for time, value in page.evaluations]
    losses = [(time, f"{value:.4f}") for time, value in chart.thin(page.losses, 24)]
    series = (("World size", sizes), ("Accuracy", evaluations), ("Loss", losses))
    return [
        node_table,
        *(
            _table(
                name
                if len(rows) <= MAX_TABLE_ROWS
                else f"{name}, the last {MAX_TABLE_ROWS} values",
                ["At", name],
                [[clock(time - page.start), value] for time, value in rows[-MAX_TABLE_ROWS:]],
            )
            for name, rows in series
            if rows
        ),
    ]


def _table(caption: str, names: list[str], rows: list[list[str]]) -> Html:
    header = element("tr", *(element("th", name, scope="col") for name in names))
    body = (
        element(
            "tr",
            element("th", row[0], scope="row"),
            *(element("td", cell, class_="number") for cell in row[1:]),
        )
        for row in rows
    )
    table = element(
        "table",
        element("caption", caption),
        element("thead", header),
        element("tbody", *body),
        class_="plain",
    )
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=caption)


def _footer(page: ReportPage) -> Html:
    creation = join(["Generated ", utc(page.now), f" by Everstep {metadata.version('everstep')}, "])
    return element(
        "footer",
        element("p", creation, "from the journals of the workers and the events of the machines."),
    )


def inspector_values(page: ReportPage) -> dict[str, object]:
    """Return the values that the page's script looks up.

    Times are tenths of a second from the start. Segments of a node have their lengths, and one digit for each state.
    """
    order = {state: position for position, state in enumerate(NodeState)}
    return {
        "seconds": round(page.seconds, 1),
        "states": [STATE_WORDS[state] for state in order],
        "nodes": [
            {
                "name": lane.timeline.node,
                "tenths": [
                    tenths(page, piece.end) - tenths(page, piece.start)
                    for piece in lane.timeline.segments
                ],
                "state": "".join(str(order[piece.state]) for piece in lane.timeline.segments),
            }
            for lane in page.lanes
        ],
        "sizes": [[tenths(page, size.at), size.world_size] for size in page.report.world_sizes],
        "steps": _thin_points(page, page.steps),
        "losses": _thin_points(page, page.losses),
    }


def _thin_points(page: ReportPage, points: tuple[chart.Point, ...]) -> list[list[float]]:
    return [
        [tenths(page, time), round(value, 5)]
        for time, value in chart.thin(points, INSPECTOR_POINTS)
    ]
