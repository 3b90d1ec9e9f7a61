"""Charts as PNG, with the layout of their SVG, for documents that do not accept SVG.

Pillow draws them: the trainer needs Pillow anyway, and it contains a font. A program that renders SVG takes fonts
from the machine, which may have none.
"""

import io
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from everstep.cli.line_chart import (
    BOTTOM,
    COLORS,
    LEFT,
    RIGHT,
    TOP,
    Curve,
    LineChart,
    Point,
)

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

SCALE = 2
"""Pixels of the picture for one pixel of the SVG, for high-resolution screens and print."""

SUPERSAMPLING = 2
"""Factor by which the picture is drawn larger, since Pillow draws lines without anti-aliasing."""

PAPER, GRID, AXIS, HEADING, TEXT = "#ffffff", "#e2e8f0", "#64748b", "#0f172a", "#334155"
DASH, SPACE = 6.0, 4.0


def png(chart: LineChart) -> bytes:
    """Return a chart as a PNG file."""
    from PIL import Image, ImageDraw

    factor = SCALE * SUPERSAMPLING
    image = Image.new("RGB", (chart.width * factor, chart.height * factor), PAPER)
    pen = _Pen(ImageDraw.Draw(image), factor)
    _draw_axes(pen, chart)
    _draw_curves(pen, chart)
    file = io.BytesIO()
    image.reduce(SUPERSAMPLING).save(file, "PNG")
    return file.getvalue()


class _Pen:
    """A pen that draws in the coordinates of the SVG."""

    def __init__(self, draw: "ImageDraw", factor: int) -> None:
        self._draw, self._factor = draw, factor

    def line(self, points: Sequence[Point], color: str, width: float) -> None:
        scaled = [(x * self._factor, y * self._factor) for x, y in points]
        self._draw.line(scaled, color, round(width * self._factor), joint="curve")

    def dashed_line(self, start: Point, end: Point, color: str, width: float) -> None:
        length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5
        offset = 0.0
        while offset < length:
            ends = [
                self._between(start, end, p / length) for p in (offset, min(offset + DASH, length))
            ]
            self.line(ends, color, width)
            offset += DASH + SPACE

    @staticmethod
    def _between(start: Point, end: Point, share: float) -> Point:
        return (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]))

    def area(self, outline: Sequence[Point], color: str) -> None:
        self._draw.polygon([(x * self._factor, y * self._factor) for x, y in outline], color)

    def dot(self, center: Point, radius: float, color: str) -> None:
        x, y = (value * self._factor for value in center)
        self._draw.circle((x, y), radius * self._factor, fill=color)

    def text(
        self, position: Point, text: str, *, size: float = 14, color: str = TEXT, anchor: str = "l"
    ) -> None:
        """Draw text with the left end, middle or right end of its baseline (anchor l, m, r) at a position."""
        from PIL import ImageFont

        x, y = (value * self._factor for value in position)
        font = ImageFont.load_default(size * self._factor)
        self._draw.text((x, y), text, color, font, anchor=f"{anchor}s")


def _draw_axes(pen: _Pen, chart: LineChart) -> None:
    right, bottom = chart.width - RIGHT, chart.height - BOTTOM
    pen.text((LEFT, 30), chart.title, size=18, color=HEADING)
    for value, text in chart.y.ticks:
        y = chart.position(0.0, value)[1]
        pen.line([(LEFT, y), (right, y)], GRID, 1)
        pen.text((LEFT - 10, y + 5), text, anchor="r")
    pen.line([(LEFT, bottom), (right, bottom)], AXIS, 1)
    for value, text in chart.x.ticks:
        x = chart.position(value, chart.y.ticks[0][0])[0]
        pen.text((x, bottom + 22), text, anchor="m")
    pen.text(((LEFT + right) // 2, bottom + 46), chart.x.title, anchor="m")
    pen.text((LEFT, TOP - 12), chart.y.title)


def _draw_curves(pen: _Pen, chart: LineChart) -> None:
    for number, curve in enumerate(chart.curves):
        color, (x, y) = COLORS[number % len(COLORS)], chart.legend_position(number)
        _draw_line(pen, curve, [(x, y), (x + 22, y)], color)
        pen.text((x + 28, y + 5), curve.name)
        if curve.filled and curve.points:
            pen.area([chart.position(*point) for point in chart.area(curve)], color)
        _draw_line(pen, curve, [chart.position(*point) for point in curve.points], color)
        for point in curve.marks:
            pen.dot(chart.position(*point), 3.5, color)


def _draw_line(pen: _Pen, curve: Curve, points: Sequence[Point], color: str) -> None:
    if not curve.reference:
        pen.line(points, color, 2.5)
        return
    for start, end in pairwise(points):
        pen.dashed_line(start, end, color, 1.5)
