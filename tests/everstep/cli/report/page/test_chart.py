"""Charts: ticks that fit, curves that keep their extremes, paths that a browser reads."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.report.page.chart import (
    Scale,
    bars_path,
    line_path,
    step_path,
    thin,
    time_ticks,
    value_ticks,
)

FINITE = st.floats(-1e6, 1e6, allow_nan=False)
POINTS = st.lists(FINITE, max_size=300).map(lambda ys: [(float(x), y) for x, y in enumerate(ys)])


@given(POINTS, st.integers(4, 60))
def test_a_thinned_curve_keeps_ends_and_extremes(
    points: list[tuple[float, float]], limit: int
) -> None:
    thinned_points = thin(points, limit)

    assert len(thinned_points) <= limit
    assert set(thinned_points) <= set(points)
    assert list(thinned_points) == sorted(thinned_points), "a curve never runs backwards"
    if points:
        assert (thinned_points[0], thinned_points[-1]) == (points[0], points[-1])
        assert min(y for _, y in thinned_points) == min(y for _, y in points)
        assert max(y for _, y in thinned_points) == max(y for _, y in points)


@given(st.integers(0, 9_999), st.sampled_from((-5.0, 5.0)))
def test_a_thinned_curve_keeps_a_spike(position: int, spike: float) -> None:
    points = [(float(x), spike if x == position else 0.0) for x in range(10_000)]

    assert (float(position), spike) in thin(points)


@given(st.floats(0, 1e10))
def test_time_ticks_are_few_and_within_the_run(seconds: float) -> None:
    ticks = time_ticks(seconds)

    assert 1 <= len(ticks) <= 7
    assert ticks[0] == 0
    assert ticks[-1] <= seconds
    assert len({b - a for a, b in pairwise(ticks)}) <= 1, "equal distances"


@given(FINITE, st.floats(1e-6, 1e6))
def test_value_ticks_enclose_the_values(low: float, span: float) -> None:
    high = low + span
    ticks = value_ticks(low, high)

    assert ticks[0] <= low + 1e-6 * span
    assert ticks[-1] >= high - 1e-6 * span
    assert len(ticks) <= 7


def test_equal_values_have_one_tick() -> None:
    assert value_ticks(2.0, 2.0) == (2.0,)


@given(st.lists(FINITE, min_size=3, max_size=3))
def test_a_scale_maps_low_to_the_bottom_and_high_to_the_top(values: list[float]) -> None:
    low, value, high = sorted(values)
    scale = Scale(low, high, 100)

    assert -1e-6 <= scale.y(value) <= 100 + 1e-6
    if high > low:
        assert (scale.y(low), scale.y(high)) == (100, 0)


def test_paths_are_drawn_in_their_coordinates() -> None:
    assert line_path([(0, 1.5), (10, 2)]) == "M0 1.5L10 2"
    assert step_path([(0, 3), (40, 2)], 90) == "M0 3H40V2H90"
    assert step_path([], 90) == ""
    assert bars_path([(5, 9), (12, 14)], 16.5) == "M0 16.5m5 0h4m3 0h2"
    assert bars_path([], 16) == ""


@given(POINTS)
def test_a_path_has_numbers_without_exponents(points: list[tuple[float, float]]) -> None:
    assert re.fullmatch(r"([ML]-?\d+(\.\d+)? -?\d+(\.\d+)?)*", line_path(points))
