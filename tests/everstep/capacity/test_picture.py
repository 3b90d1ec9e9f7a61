"""Pictures of a replay: valid SVG that shows every zone, the group and its moves."""

from xml.etree import ElementTree as ET

from everstep.capacity.history import CapacityHistory
from everstep.capacity.picture import draw, runs
from everstep.capacity.simulator import TickRecord

HISTORY = CapacityHistory(("a & b", "c"), 3600.0, ((4, 0), (0, 4), (0, 2), (0, 0)))
SVG = "{http://www.w3.org/2000/svg}"


def ticks(*zones_and_machines: tuple[int, int, int]) -> list[TickRecord]:
    return [TickRecord(zone, spot, bought, "reason") for zone, spot, bought in zones_and_machines]


def elements(svg: str, tag: str, style: str) -> list[ET.Element]:
    matching = ET.fromstring(svg).iter(f"{SVG}{tag}")
    return [element for element in matching if element.get("class") == style]


def test_periods_without_a_change_are_found() -> None:
    assert list(runs([0, 0, 3, 3, 3, 1])) == [(0, 2, 0), (2, 5, 3), (5, 6, 1)]
    assert list(runs([])) == []


def test_each_zone_has_a_lane_and_each_move_a_line() -> None:
    svg = draw(HISTORY, ticks((0, 4, 0), (1, 4, 0), (1, 2, 0), (1, 0, 0)), 4)

    assert len(elements(svg, "rect", "lane")) == 2
    assert len(elements(svg, "line", "move")) == 1
    assert "a &amp; b" in svg
    assert "<title>4 hours, 4 desired machines, 1 move</title>" in svg


def test_machines_of_the_group_are_drawn_in_its_zone_only() -> None:
    svg = draw(HISTORY, ticks((0, 4, 0), (0, 0, 0)), 4)

    first_path, second_path = (element.get("d") for element in elements(svg, "path", "used"))
    assert first_path
    assert not second_path


def test_on_demand_machines_have_a_lane_if_there_were_any() -> None:
    svg = draw(HISTORY, ticks((0, 4, 0), (1, 0, 4)), 4)

    assert len(elements(svg, "rect", "lane")) == 3
    assert elements(svg, "path", "bought")[0].get("d")
