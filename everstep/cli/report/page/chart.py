"""Arithmetic of the page's charts: ticks, thinned series, SVG paths. Pure functions of numbers.

Charts have their own coordinate system: x in tenths of a second since the run's start, y in pixels
from the top. The browser stretches x to the width of the page, so that a chart fits every screen, and
the page's script zooms in with a smaller view box.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TENTHS = 10
MAX_POINTS = 800
"""Maximum number of points of a curve: about the width of a chart in pixels."""

_TIME_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(60 * n for n in (1, 2, 5, 10, 15, 30)),
    *(3600 * n for n in (1, 2, 3, 6, 12)),
    *(86_400 * n for n in (1, 2, 7, 14, 28, 91, 182, 364)),
)
"""Intervals between time ticks, in seconds."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """Values from `low` at the bottom to `high` at the top of `height` pixels."""

    low: float
    high: float
    height: float

    def y(self, value: float) -> float:
        """Return the pixels from the top."""
        span = self.high - self.low
        return self.height * (1 - (value - self.low) / span) if span > 0 else self.height / 2


def time_ticks(seconds: float, count: int = 6) -> tuple[int, ...]:
    """Return at most `count` + 1 round times from 0 to `seconds`."""
    step = next((step for step in _TIME_STEPS if seconds / step <= count), None)
    if step is None:
        step = _TIME_STEPS[-1] * math.ceil(seconds / count / _TIME_STEPS[-1])
    return tuple(range(0, math.floor(seconds) + 1, step))


def value_ticks(low: float, high: float, count: int = 4) -> tuple[float, ...]:
    """Return round values that enclose `low` and `high`, about `count` of them."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return (low,)
    magnitude = 10.0 ** math.floor(math.log10(span / count))
    step = next(
        (m * magnitude for m in (1, 2, 2.5, 5) if span / (m * magnitude) <= count), 10 * magnitude
    )
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(round(n * step, 12) for n in range(first, last + 1))


def thin(points: Sequence[Point], limit: int = MAX_POINTS) -> tuple[Point, ...]:
    """Return at most `limit` of the points, with the first, the last, and each bucket's extremes.

    Args:
        points: points, ascending by x.
        limit: maximum number, at least 4.
    """
    if len(points) <= limit:
        return tuple(points)
    buckets = (limit - 2) // 2
    inner = len(points) - 2
    indices = {0, len(points) - 1}
    for bucket in range(buckets):
        begin, end = 1 + bucket * inner // buckets, 1 + (bucket + 1) * inner // buckets
        indices.add(min(range(begin, end), key=lambda i: points[i][1]))
        indices.add(max(range(begin, end), key=lambda i: points[i][1]))
    return tuple(points[i] for i in sorted(indices))


def line_path(points: Iterable[Point]) -> str:
    """Return the path of a line through points."""
    return "".join(f"{'L' if i else 'M'}{number(x)} {number(y)}" for i, (x, y) in enumerate(points))


def step_path(points: Sequence[Point], end: float) -> str:
    """Return the path of a line that keeps each value until the next point, and the last until `end`."""
    if not points:
        return ""
    first_x, first_y = points[0]
    moves = "".join(f"H{number(x)}V{number(y)}" for x, y in points[1:])
    return f"M{number(first_x)} {number(first_y)}{moves}H{number(end)}"


def bars_path(spans: Iterable[tuple[int, int]], y: float) -> str:
    """Return the path of horizontal lines, one for each span of x; drawn with a wide stroke they are bars.

    Positions are relative, because a long run has tens of thousands of spans.
    """
    parts, position = [], 0
    for begin, end in spans:
        parts.append(f"m{begin - position} 0h{end - begin}")
        position = end
    return f"M0 {number(y)}{''.join(parts)}" if parts else ""


def number(value: float) -> str:
    """Return a coordinate with at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value != int(value) else str(int(value))
