"""The table, the JSON and the chart of a study."""

import json
from xml.etree import ElementTree

from everstep.cli.scaling.show import as_value, chart, report_lines
from everstep.cli.scaling.study import SizeResult

SVG = "{http://www.w3.org/2000/svg}"
SIZES = [
    SizeResult(1, 8, 1000, 10.0, 1000, 1.0, 8.0, 1.0, 40.0),
    SizeResult(2, 16, 1000, 6.25, 1000, 1.0, 8.0, 3.0, 44.0),
    SizeResult(3, 24, 500, 2.0, 1000, None, None, None, None),
]


def report(shared_cpus: int | None = None) -> str:
    return "\n".join(report_lines("efficientnet_b7", SIZES, shared_cpus))


def test_the_table_has_the_time_of_an_epoch_and_the_efficiency_of_each_size() -> None:
    lines = [line.split() for line in report().splitlines()]

    assert ["1", "8", "10.0", "100.0", "100.0%", "10.0%", "40.00"] in lines
    assert ["2", "16", "6.2", "160.0", "80.0%", "25.0%", "44.00"] in lines
    assert ["3", "24", "4.0*", "250.0", "83.3%", "-", "-"] in lines
    assert "* Extrapolated" in report()


def test_shared_cpus_are_stated_wherever_they_limit_the_speed() -> None:
    assert "share 2 CPUs, so images/s cannot scale" in report(shared_cpus=2)
    assert "share" not in report().replace("share of a step", "")
    assert "2 shared CPUs" in chart("resnet50", SIZES, 2).svg()


def test_the_json_is_plain_and_complete() -> None:
    value = json.loads(json.dumps(as_value({"model": "resnet50"}, SIZES, 2)))

    assert [size["efficiency"] for size in value["sizes"]][:2] == [1.0, 0.8]
    assert value["sizes"][2]["extrapolated"] is True
    assert value["sizes"][1]["processor_milliseconds_per_image"] == 44.0
    assert value["shared_processors"] == 2


def test_the_chart_has_the_ideal_line_below_the_measured_one() -> None:
    drawing = ElementTree.fromstring(chart("efficientnet_b7", SIZES, None).svg())

    points = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in drawing.iter(f"{SVG}circle")]
    ideal_line = next(p for p in drawing.iter(f"{SVG}path") if p.attrib["class"] == "reference")
    x, y = (float(word) for word in ideal_line.attrib["d"].split("L")[-1].split())
    assert len(points) == len(SIZES)
    assert x == points[-1][0], "the line ends at the largest size"
    assert y > points[-1][1], "24 processes took longer than a third of the time of 8"
    texts = [element.text for element in drawing.iter(f"{SVG}text")]
    assert {"measured", "ideal", "processes", "seconds"} <= set(texts)


def test_a_study_of_one_size_can_be_drawn() -> None:
    drawing = ElementTree.fromstring(chart("resnet50", SIZES[:1], None).svg())

    assert len(list(drawing.iter(f"{SVG}circle"))) == 1
