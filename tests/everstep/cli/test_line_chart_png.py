"""Charts as PNG, read back with Pillow."""

import io

import pytest
from PIL import Image

from everstep.cli.line_chart import COLOURS, HEIGHT, WIDTH, Axis, Curve, LineChart
from everstep.cli.line_chart_png import SCALE, png

AXIS = Axis("replicas", [(0.0, "0"), (1.0, "1"), (2.0, "2")])
MEASURED_CURVE = Curve("measured", [(0.5, 0.5), (1.5, 1.5)])
IDEAL_CURVE = Curve("ideal", [(0.0, 2.0), (2.0, 2.0)], reference=True)
CHART = LineChart("A chart", AXIS, AXIS, (MEASURED_CURVE, IDEAL_CURVE))


def render(chart: LineChart) -> Image.Image:
    return Image.open(io.BytesIO(png(chart))).convert("RGB")


def colour_at(image: Image.Image, x: float, y: float) -> str:
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
        assert colour_at(image, *CHART.position(*point)) == COLOURS[0]
    middle = CHART.position(1.0, 1.0)
    assert colour_at(image, *middle) == COLOURS[0], "the points are connected"


def test_the_reference_line_is_dashed(image: Image.Image) -> None:
    (left, y), (right, _) = (CHART.position(*point) for point in IDEAL_CURVE.points)

    colours = {colour_at(image, x, y) for x in range(int(left) + 20, int(right))}
    assert COLOURS[1] in colours
    assert len(colours) > 1, "spaces show what is below"


def test_texts_are_drawn_without_fonts_of_the_machine() -> None:
    chart_without_title = LineChart("", AXIS, AXIS)
    chart_with_title = LineChart("A title", AXIS, AXIS)

    assert render(chart_with_title).tobytes() != render(chart_without_title).tobytes()
