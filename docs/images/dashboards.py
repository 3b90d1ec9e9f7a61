"""Draw the dashboards from a real run: `python -m docs.images.dashboards`.

A Prometheus server from Debian's package scrapes the workers of a launcher, one of which is killed several times, a
controller with the pods of this job, and the exporter of a simulated GPU node. Every panel's query is evaluated by this
server and drawn at the panel's place in the dashboard's JSON. Grafana itself is not used: its license is the AGPL. The
script needs seven minutes and `make built`.
"""

import os
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from components.platform.dashboards import DASHBOARDS
from controller.objects import Pod
from everstep.cli.line_chart import Axis, Curve, LineChart, Point
from everstep.cli.report.page.chart import value_ticks
from tests.controller.builders import failed_pod, pod
from tests.monitoring.exporters import (
    JOB,
    PRICES,
    WORKERS,
    controller,
    gpu_node,
    lose_worker,
    training,
)
from tests.monitoring.prometheus import Prometheus, prometheus_server
from tests.processes import processes_in_session, stat_fields

CALM_SECONDS = 80
"""Time of undisturbed training before and after each loss of a worker."""
LOSSES = 4
ABSENT_SECONDS = 4.0
"""Time from the loss of a pod until the controller's job has it again."""
STEP_SECONDS = 2
RATE_INTERVAL = "10s"  # Grafana: at least four intervals of scraping
COLUMN, GRID_ROW = 60, 45
"""Size of a cell of the dashboards' grid, in pixels."""
COLUMNS = 24
DAY_SECONDS = 86400
GAP, HEADING = 8, 48
LABEL = re.compile(r"\{\{(\w+)\}\}")
STYLE = """
    .back { fill: #f1f5f9; }
    .card { fill: #ffffff; stroke: #e2e8f0; }
    .dashboard { font-size: 24px; font-weight: 650; fill: #0f172a; }
    .row { font-size: 18px; font-weight: 650; fill: #334155; }
    .name { font-size: 16px; font-weight: 650; fill: #0f172a; }
    .good { font-size: 34px; font-weight: 650; fill: #15803d; }
    .warn { font-size: 34px; font-weight: 650; fill: #c2410c; }
"""
UNITS = {
    "ops": "per second",
    "s": "seconds",
    "percent": "%",
    "percentunit": "%",
    "watt": "W",
    "celsius": "°C",
    "mbytes": "MiB",
    "bytes": "bytes",
    "currencyUSD": "USD",
}
SUFFIXES = {**UNITS, "ops": "/s", "s": "s"}
FACTORS = {"percentunit": 100.0}
Panel = Mapping[str, Any]


def main() -> None:
    """Write a picture of each dashboard next to this file."""
    with tempfile.TemporaryDirectory(prefix="dashboards-") as scratch:
        for name, picture in record(Path(scratch)).items():
            Path(__file__).with_name(f"{name}.svg").write_text(picture)


def record(folder: Path) -> dict[str, str]:
    """Train in a folder, and return the picture of each dashboard by its name."""
    (folder / "prices.yaml").write_text(PRICES)
    absent = threading.Event()
    with ExitStack() as stack:
        launcher, ports = stack.enter_context(training(folder))
        targets = {
            **{f"worker-{port}": port for port in ports},
            "controller": stack.enter_context(controller(_pods(absent), WORKERS)),
            "gpu": stack.enter_context(gpu_node(Load(launcher.process.pid), gpus=1)),
        }
        prometheus = stack.enter_context(prometheus_server(folder, targets, folder / "prices.yaml"))
        start = time.time()
        for _ in range(LOSSES):
            time.sleep(CALM_SECONDS)
            absent.set()
            lose_worker(folder, launcher)
            time.sleep(ABSENT_SECONDS)
            absent.clear()
        time.sleep(CALM_SECONDS)
        source = Source(prometheus, start, time.time())
        return {dashboard.uid: draw(dashboard.to_json(), source) for dashboard in DASHBOARDS}


def _pods(absent: threading.Event) -> Iterator[Sequence[Pod]]:
    """Yield the pods of the job at each pass; the second one fails and is missing while `absent` is set."""
    while True:
        yield [pod(0), pod(1)]
        if absent.is_set():
            yield [pod(0), failed_pod(1)]
        while absent.is_set():
            yield [pod(0)]


@dataclass
class Load:
    """The load of a launcher's processes, which stands for the load of the simulated GPU.

    Attributes:
        session: process ID of the launcher.
    """

    session: int

    def __post_init__(self) -> None:
        self._seconds, self._at = self._used_seconds(), time.monotonic()

    def __call__(self) -> float:
        """Return the percentage of this machine's CPUs that the processes used since the previous call."""
        seconds, now = self._used_seconds(), time.monotonic()
        used = seconds - self._seconds  # negative after the end of a process
        share = used / (now - self._at) / (os.cpu_count() or 1)
        self._seconds, self._at = seconds, now
        return min(100.0, max(0.0, 100 * share))

    def _used_seconds(self) -> float:
        return sum(map(_cpu_seconds, processes_in_session(self.session)))


def _cpu_seconds(process: int) -> float:
    """Return the CPU time that a process has used; 0 if it has ended."""
    ticks = stat_fields(process)[11:13]  # in user mode, in the kernel
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Source:
    """A source of the panels' data.

    Attributes:
        prometheus: the server.
        start: Unix time of the left end of all axes.
        end: Unix time of their right end.
    """

    prometheus: Prometheus
    start: float
    end: float

    def curves(self, panel: Panel) -> list[Curve]:
        """Return the series of a panel, by minutes since the start.

        Raises:
            SystemExit: a query has no data.
        """
        factor = FACTORS.get(panel["fieldConfig"]["defaults"]["unit"], 1.0)
        curves = []
        for target in panel["targets"]:
            series = self._series(target["expr"])
            if not series:
                raise SystemExit(f"{panel['title']}: no data for {target['expr']}")
            curves += [
                Curve(_legend(target, s["metric"]), self._points(s, factor), dots=False)
                for s in series
            ]
        return curves

    @property
    def minutes(self) -> float:
        """Length of the axes."""
        return (self.end - self.start) / 60

    def marks(self, annotations: Iterable[Mapping[str, Any]]) -> list[float]:
        """Return the minutes at which an annotation begins."""
        times = sorted(
            {
                at
                for annotation in annotations
                for series in self._series(annotation["expr"])
                for at, _ in series["values"]
            }
        )
        return [
            (at - self.start) / 60
            for before, at in zip([0.0, *times], times, strict=False)
            if at - before > STEP_SECONDS
        ]

    def _series(self, expression: str) -> list[dict[str, Any]]:
        query = (
            expression.replace("$elasticjob", JOB)
            .replace("$node", ".*")
            .replace("$__rate_interval", RATE_INTERVAL)
        )
        span = {"start": f"{self.start:.0f}", "end": f"{self.end:.0f}", "step": str(STEP_SECONDS)}
        series: list[dict[str, Any]] = self.prometheus.get("query_range", query=query, **span)[
            "result"
        ]
        return series

    def _points(self, series: Mapping[str, Any], factor: float) -> list[Point]:
        return [
            ((at - self.start) / 60, factor * float(value))
            for at, value in series["values"]
            if value != "NaN"
        ]


def _legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    return LABEL.sub(lambda match: labels[match[1]], target["legendFormat"])


def draw(dashboard: Mapping[str, Any], source: Source) -> str:
    """Return a dashboard as an SVG document, each panel at the position of its JSON."""
    panels = dashboard["panels"]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in panels)
    width, height = COLUMNS * COLUMN + 2 * GAP, rows * GRID_ROW + HEADING + 2 * GAP
    marks = source.marks(dashboard["annotations"]["list"])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f"<title>{escape(dashboard['title'])}</title>\n<style>{STYLE}</style>",
        f'<rect class="back" width="{width}" height="{height}"/>',
        f'<text class="dashboard" x="{2 * GAP}" y="{HEADING - 14}">{escape(dashboard["title"])}</text>',
        *(_placed(panel, source, marks) for panel in panels),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _placed(panel: Panel, source: Source, marks: Sequence[float]) -> str:
    """Return a panel at its position."""
    cell = panel["gridPos"]
    x, y = GAP + cell["x"] * COLUMN, HEADING + GAP + cell["y"] * GRID_ROW
    width, height = cell["w"] * COLUMN - GAP, cell["h"] * GRID_ROW - GAP
    if panel["type"] == "row":
        content = f'<text class="row" x="{GAP}" y="{height - GAP}">{escape(panel["title"])}</text>'
    elif panel["type"] == "stat":
        content = _stat(panel, source, width, height)
    else:
        content = _time_series(panel, source, marks, width, height)
    return f'<g transform="translate({x} {y})">{content}</g>'


def _stat(panel: Panel, source: Source, width: int, height: int) -> str:
    """Return a panel with the last value, in the color of its thresholds."""
    (curve,) = source.curves(panel)
    options = panel["fieldConfig"]["defaults"]
    value = curve.points[-1][1]
    steps = options["thresholds"]["steps"]
    factor = FACTORS.get(options["unit"], 1.0)
    reached = [s for s in steps if s["value"] is None or value >= factor * s["value"]]
    kind = "good" if reached[-1]["color"] == "green" else "warn"
    text = _number(value, options)
    return (
        f'<rect class="card" width="{width}" height="{height}" rx="6"/>'
        f'<text class="name" x="14" y="30">{escape(panel["title"])}</text>'
        f'<text class="{kind}" text-anchor="middle" x="{width // 2}" y="{height // 2 + 30}">{escape(text)}</text>'
    )


def _number(value: float, options: Mapping[str, Any]) -> str:
    """Return a value with its unit."""
    if options["unit"] == "s" and value > DAY_SECONDS:
        return f"{value / DAY_SECONDS:.1f} days"
    number = f"{value:,.{options.get('decimals', 0 if value >= 10 else 1)}f}".removesuffix(".0")
    return f"{number} {SUFFIXES.get(options['unit'], '')}".strip()


def _time_series(
    panel: Panel, source: Source, marks: Sequence[float], width: int, height: int
) -> str:
    """Return a panel with lines, and a vertical line at each mark."""
    options = panel["fieldConfig"]["defaults"]
    curves = source.curves(panel)
    if options["custom"]["stacking"]["mode"] == "normal":
        curves = stack(curves)
    chart = LineChart(
        panel["title"],
        Axis("minutes", _minutes(source.minutes)),
        Axis(UNITS.get(options["unit"], ""), _ticks(curves, options)),
        curves,
        width,
        height,
    )
    lines = "".join(_mark(chart, minute) for minute in marks)
    return (
        chart.svg()
        .replace("<svg ", f'<svg width="{width}" height="{height}" ', 1)
        .replace("</svg>", f"{lines}</svg>")
    )


def _mark(chart: LineChart, minute: float) -> str:
    (x, bottom), (_, top) = (chart.position(minute, chart.y.ticks[end][0]) for end in (0, -1))
    return f'<line stroke="#60a5fa" stroke-dasharray="3 3" x1="{x}" x2="{x}" y1="{top}" y2="{bottom}"/>'


def _minutes(length: float) -> list[tuple[float, str]]:
    """Return a tick for each whole minute, and one without text at the end."""
    return [*((float(minute), str(minute)) for minute in range(int(length) + 1)), (length, "")]


def _ticks(curves: Sequence[Curve], options: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Return the ticks of the vertical axis, which the panel may bound."""
    values = [y for curve in curves for _, y in curve.points]
    low, high = options.get("min", min(values)), options.get("max", max(values))
    ticks = value_ticks(low, high if high > low else low + 1)
    return [(tick, f"{tick:,g}") for tick in ticks]


def stack(curves: Sequence[Curve]) -> list[Curve]:
    """Return curves as filled areas on top of each other, the highest first; without those that are always 0."""
    totals: dict[float, float] = {}
    areas = []
    for curve in curves:
        if not any(y for _, y in curve.points):
            continue
        for x, y in curve.points:
            totals[x] = totals.get(x, 0.0) + y
        areas.append(
            Curve(curve.name, [(x, totals[x]) for x, _ in curve.points], dots=False, filled=True)
        )
    return areas[::-1]


if __name__ == "__main__":
    main()
