"""Line charts as SVG: a title, two axes, a legend, and curves.

Like the pictures of the report and of `everstep plan`, these need no plotting library.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 960, 540
LEFT, RIGHT, TOP, BOTTOM = 90, 30, 104, 60
COLORS = (
    "#2563eb", "#16a34a", "#ea580c", "#9333ea", "#0f172a", "#db2777", "#0891b2", "#ca8a04", "#64748b", "#dc2626",
    "#84cc16",
)  # fmt: skip
STYLE = """
    .page { fill: #ffffff; }
    .grid { stroke: #e2e8f0; }
    .axis { stroke: #64748b; }
    .h { font-size: 18px; font-weight: 650; fill: #0f172a; }
    .t { font-size: 14px; fill: #334155; }
    .line { fill: none; stroke-width: 2.5; }
    .reference { fill: none; stroke-width: 1.5; stroke-dasharray: 6 4; }
"""
LEGEND_TOP, LEGEND_ROW, LEGEND_ENTRY = 56, 18, 110
"""Baseline of the first row of the legend, distance of its rows, width of its narrowest column, in pixels."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """A line with a name.

    Attributes:
        name: name in the legend.
        points: points, ascending by x.
        reference: True for a line to compare with: dashed, without dots.
        dots: True to mark each point; False for many points.
        filled: True to fill the area below the line, over the curves drawn before.
    """

    name: str
    points: Sequence[Point]
    reference: bool = False
    dots: bool = True
    filled: bool = False

    @property
    def marks(self) -> Sequence[Point]:
        """The points with a dot."""
        return self.points if self.dots and not self.reference else ()


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        title: quantity and unit.
        ticks: values with their labels, ascending, at least two; they bound the axis.
        logarithmic: True if equal factors have equal distances.
    """

    title: str
    ticks: Sequence[tuple[float, str]]
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """Return the position of a value: 0 at the first tick, 1 at the last one."""
        low, high = (self._scaled(self.ticks[index][0]) for index in (0, -1))
        return (self._scaled(value) - low) / (high - low)

    def _scaled(self, value: float) -> float:
        lowest = self.ticks[0][0]
        return math.log(max(value, lowest)) if self.logarithmic else value


@dataclass(frozen=True)
class LineChart:
    """A chart.

    Attributes:
        title: heading.
        x: horizontal axis.
        y: vertical axis.
        curves: lines, drawn in order.
        width: width in pixels.
        height: height in pixels.
    """

    title: str
    x: Axis
    y: Axis
    curves: Sequence[Curve] = field(default_factory=tuple)
    width: int = WIDTH
    height: int = HEIGHT

    def svg(self) -> str:
        """Return the chart as an SVG document."""
        return "\n".join([*self._head(), *self._axes(), *self._lines(), "</svg>", ""])

    def position(self, x: float, y: float) -> Point:
        """Return the position of a point in the picture."""
        return self._x(x), self._y(y)

    def legend_position(self, number: int) -> tuple[int, int]:
        """Return the left end of a curve's entry in the legend, which has as many rows as it needs."""
        plot = self.width - LEFT - RIGHT
        columns = min(max(plot // LEGEND_ENTRY, 1), max(len(self.curves), 1))
        row, column = divmod(number, columns)
        return LEFT + column * (plot // columns), LEGEND_TOP + row * LEGEND_ROW

    def _head(self) -> Iterator[str]:
        box = f'viewBox="0 0 {self.width} {self.height}" role="img" font-family="sans-serif"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
        yield f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>"
        yield f'<rect class="page" width="{self.width}" height="{self.height}"/>'
        yield f'<text class="h" x="{LEFT}" y="30">{escape(self.title)}</text>'

    def _axes(self) -> Iterator[str]:
        right, bottom = self.width - RIGHT, self.height - BOTTOM
        for value, text in self.y.ticks:
            y = self._y(value)
            yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>'
            yield f'<text class="t" text-anchor="end" x="{LEFT - 10}" y="{y + 5:g}">{escape(text)}</text>'
        yield f'<line class="axis" x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
        for value, text in self.x.ticks:
            x = self._x(value)
            yield f'<text class="t" text-anchor="middle" x="{x}" y="{bottom + 22}">{escape(text)}</text>'
        middle = (LEFT + right) // 2
        yield f'<text class="t" text-anchor="middle" x="{middle}" y="{bottom + 46}">{escape(self.x.title)}</text>'
        yield f'<text class="t" x="{LEFT}" y="{TOP - 12}">{escape(self.y.title)}</text>'

    def _lines(self) -> Iterator[str]:
        for number, curve in enumerate(self.curves):
            color = COLORS[number % len(COLORS)]
            kind = "reference" if curve.reference else "line"
            x, y = self.legend_position(number)
            yield f'<line class="{kind}" stroke="{color}" x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}"/>'
            yield f'<text class="t" x="{x + 28}" y="{y + 5}">{escape(curve.name)}</text>'
            if curve.filled and curve.points:
                yield f'<path fill="{color}" d="{self._path(self.area(curve))}Z"/>'
            yield f'<path class="{kind}" stroke="{color}" d="{self._path(curve.points)}"/>'
            for point in curve.marks:
                yield f'<circle r="3.5" fill="{color}" cx="{self._x(point[0])}" cy="{self._y(point[1])}"/>'

    def area(self, curve: Curve) -> Sequence[Point]:
        """Return the outline of the area between a curve and the axis below it."""
        lowest = self.y.ticks[0][0]
        return [(curve.points[0][0], lowest), *curve.points, (curve.points[-1][0], lowest)]

    def _path(self, points: Sequence[Point]) -> str:
        return "".join(
            f"{'L' if index else 'M'}{self._x(x)} {self._y(y)}"
            for index, (x, y) in enumerate(points)
        )

    def _x(self, value: float) -> float:
        return round(LEFT + self.x.share(value) * (self.width - LEFT - RIGHT), 1)

    def _y(self, value: float) -> float:
        plot = self.height - TOP - BOTTOM
        return round(self.height - BOTTOM - self.y.share(value) * plot, 1)
