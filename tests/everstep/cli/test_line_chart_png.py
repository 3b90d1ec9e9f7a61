"""Charts as PNG, read back with Pillow."""

import io
from typing import Any

import pytest
from PIL import Image, ImageFont

from everstep.cli.line_chart import COLORS, HEIGHT, WIDTH, Axis, Curve, LineChart
from everstep.cli.line_chart_png import SCALE, png

AXIS = Axis("replicas", [(0.0, "0"), (1.0, "1"), (2.0, "2")])
MEASURED_CURVE = Curve("measured", [(0.5, 0.5), (1.5, 1.5)])
IDEAL_CURVE = Curve("ideal", [(0.0, 2.0), (2.0, 2.0)], reference=True)
CHART = LineChart("A chart", AXIS, AXIS, (MEASURED_CURVE, IDEAL_CURVE))


def render(chart: LineChart) -> Image.Image:
    return Image.open(io.BytesIO(png(chart))).convert("RGB")


def color_at(image: Image.Image, x: float, y: float) -> str:
    pixel = image.getpixel((round(x * SCALE), round(y * SCALE)))
    assert isinstance(pixel, tuple)
    return "#" + "".join(f"{int(value):02x}" for value in pixel)


@pytest.fixture(scope="module")
def image() -> Image.Image:
    return render(CHART)


def test_the_picture_has_the_size_of_the_svg_in_high_resolution(image: Image.Image) -> None:
    assert image.size == (WIDTH * SCALE, HEIGHT * SCALE)


def test_points_of_a_curve_are_at_their_values(image: Image.Image) -> None:
    for point in MEASURED_CURVE.points:
        assert color_at(image, *CHART.position(*point)) == COLORS[0]
    middle = CHART.position(1.0, 1.0)
    assert color_at(image, *middle) == COLORS[0], "the points are connected"


def test_the_reference_line_is_dashed(image: Image.Image) -> None:
    (left, y), (right, _) = (CHART.position(*point) for point in IDEAL_CURVE.points)

    colors = {color_at(image, x, y) for x in range(int(left) + 20, int(right))}
    assert COLORS[1] in colors
    assert len(colors) > 1, "the background is visible between the dashes"


def test_a_filled_curve_covers_the_area_below_it_and_nothing_above() -> None:
    curve = Curve("filled", [(0.0, 1.0), (2.0, 1.0)], filled=True, dots=False)
    chart = LineChart("", AXIS, AXIS, (curve,), width=480, height=360)

    picture = render(chart)

    assert picture.size == (480 * SCALE, 360 * SCALE)
    assert color_at(picture, *chart.position(1.0, 0.5)) == COLORS[0]
    assert color_at(picture, *chart.position(1.0, 1.5)) != COLORS[0]


def test_the_legend_of_a_narrow_chart_has_several_rows() -> None:
    curves = [Curve(str(number), []) for number in range(4)]
    chart = LineChart("", AXIS, AXIS, curves, width=360)

    positions = [chart.legend_position(number) for number in range(4)]

    assert len({y for _, y in positions}) == 2
    assert len(set(positions)) == 4, "entries must not overlap"


def test_text_is_drawn_without_system_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    font_types = set()
    truetype = ImageFont.truetype

    def record(font: str | io.BytesIO, *arguments: Any, **options: Any) -> ImageFont.FreeTypeFont:
        font_types.add(type(font))
        return truetype(font, *arguments, **options)

    monkeypatch.setattr(ImageFont, "truetype", record)
    chart_without_title = LineChart("", AXIS, AXIS)
    chart_with_title = LineChart("A title", AXIS, AXIS)

    assert render(chart_with_title).tobytes() != render(chart_without_title).tobytes()
    assert font_types == {io.BytesIO}, "a system font would be opened by its path"
