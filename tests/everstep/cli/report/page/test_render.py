"""The page's HTML: self-contained, escaped, structured, and with text alternatives for its graphics."""

import base64
import hashlib
import json
import re
from itertools import pairwise

import pytest

from everstep.cli.report.machines import ReportedMachine
from everstep.cli.report.money import Billing, MachineRate, Rates
from everstep.cli.report.page.model import build_page
from everstep.cli.report.page.render import render
from everstep.cli.report.page.sections import EVENTS_PER_TABLE
from everstep.cli.report.page.words import UNKNOWN
from everstep.cli.report.status import SILENT_SECONDS
from tests.everstep.cli.recorded_run import RecordedRun, two_zones
from tests.everstep.cli.report.page.parsed_page import Node, parse
from tests.everstep.cli.report.test_money import A100, BY_POOL, T4_SPOT

BILLING = Billing(billed=False, reason="it ran here")


def page_of(recorded_run: RecordedRun, billing: Billing = BILLING) -> str:
    return render(build_page(recorded_run.run(), recorded_run.now + 1, billing))


@pytest.fixture
def page(drill_run: RecordedRun) -> Node:
    return parse(page_of(drill_run))


def test_the_content_security_policy_allows_only_the_style_and_script_of_the_page(
    page: Node,
) -> None:
    (policy,) = (
        node.attributes["content"] or ""
        for node in page.all("meta")
        if node.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    (style,) = page.all("style")
    scripts = [node for node in page.all("script") if not node.attributes.get("type")]

    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for node in (style, *scripts):
        digest = base64.b64encode(hashlib.sha256(node.text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert len(scripts) == 1
    assert not any("style" in node.attributes for node in page.all("*")), (
        "the policy would block them"
    )
    assert not any(name.startswith("on") for node in page.all("*") for name in node.attributes)


def test_the_page_requests_nothing(page: Node) -> None:
    for node in page.all("*"):
        for name in ("src", "href", "action", "srcset", "poster", "xlink:href"):
            address = node.attributes.get(name) or "#"
            assert address.startswith(("#", "data:,")), f"<{node.name} {name}={address}>"
    style = "".join(node.text for node in page.all("style"))
    assert not re.search(r"url\(|@import|//", style)


def test_names_from_journals_and_events_are_text(recorded_run: RecordedRun) -> None:
    hostile_name = "</script><img src=x onerror=alert(1)>"
    recorded_run.form("gpu-0", "gpu-1").train(5).event(hostile_name, hostile_name)
    recorded_run.write("gpu-0", "checkpoint_failed", step=hostile_name, reason=hostile_name)
    recorded_run.journals[f"w{hostile_name}"] = [
        {
            "at": recorded_run.now,
            "kind": "start",
            "node": hostile_name,
            "job": hostile_name,
            "model": hostile_name,
        }
    ]
    text = page_of(recorded_run.train(5))

    page = parse(text)
    assert "<img" not in text
    assert not list(page.all("img"))
    assert hostile_name in "".join(node.text for node in page.all("h1")) + page.by_id("events").text


def test_ids_are_unique_and_references_lead_to_them(page: Node) -> None:
    ids = [node.attributes["id"] for node in page.all("*") if node.attributes.get("id")]

    assert len(ids) == len(set(ids))
    for node in page.all("*"):
        for name in ("aria-labelledby", "for", "aria-describedby"):
            if identifier := node.attributes.get(name):
                assert identifier in ids, f"{name}={identifier}"
        if (address := node.attributes.get("href") or "").startswith("#"):
            assert address[1:] in ids, f"href={address}"


def test_the_page_has_a_language_a_title_landmarks_and_ordered_headings(page: Node) -> None:
    (html,) = page.all("html")
    assert html.attributes["lang"] == "en"
    (head,) = page.all("head")
    assert [node.text for node in head.all("title")] == [
        "fashion: Training survived both losses of workers"
    ]
    assert [len(list(page.all(name))) for name in ("main", "h1", "footer")] == [1] * 3
    levels = [int(node.name[1]) for node in page.all("*") if re.fullmatch("h[1-6]", node.name)]
    assert set(levels) == {1, 2}
    assert all(below <= above + 1 for above, below in pairwise([0, *levels])), "no level is skipped"
    sections = list(page.all("section"))
    assert len(sections) == levels.count(2)
    assert all(node.attributes["aria-labelledby"] for node in sections)
    first_link = next(page.all("a"))
    assert first_link.attributes["class"] == "skip", "the first stop of the Tab key"


def test_every_drawing_has_a_text_alternative_or_is_hidden_from_screen_readers(page: Node) -> None:
    for plot in page.all("svg"):
        is_named = {"aria-label", "aria-hidden", "aria-labelledby"} & set(plot.attributes)
        is_decoration = any(plot in list(a.all("svg")) for a in page.all("a")) or (
            "data-t" in plot.attributes or "axis" in (plot.attributes.get("id") or "")
        )
        assert is_named or is_decoration, plot.attributes
    for mark in page.all("a"):
        assert mark.attributes.get("aria-label") or mark.text.strip()


def test_every_event_is_in_the_table_and_a_mark_leads_to_it(page: Node) -> None:
    rows = [n for n in page.all("tr") if (n.attributes.get("id") or "").startswith("event-")]
    marks = [node for node in page.all("a") if "mark" in (node.attributes.get("class") or "")]

    assert [row.attributes["id"] for row in rows] == [f"event-{i}" for i in range(1, 5)]
    assert {mark.attributes["href"] for mark in marks} == {f"#event-{i}" for i in range(1, 5)}
    assert "drain gpu-1" in rows[0].text
    assert "The machine disappeared without notice." in rows[2].text


def test_the_mark_of_an_event_after_a_run_has_stopped_is_at_the_end_of_the_timeline(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form("gpu-0").train(20).wait(SILENT_SECONDS).event("vanish", "gpu-0")

    page = parse(page_of(recorded_run))

    (mark,) = (node for node in page.all("a") if "mark" in (node.attributes.get("class") or ""))
    (drawing,) = mark.all("svg")
    assert drawing.attributes["x"] == "100.000%"


def test_the_data_of_the_script_has_the_state_of_every_node(page: Node) -> None:
    run = json.loads(page.by_id("run").text)

    assert [node["name"] for node in run["nodes"]] == ["gpu-0", "gpu-1", "gpu-2"]
    for node in run["nodes"]:
        assert sum(node["tenths"]) == round(10 * run["seconds"]), "no second is left out"
        assert len(node["tenths"]) == len(node["state"])
        assert set(map(int, node["state"])) <= set(range(len(run["states"])))
    assert run["sizes"][0][1] == 3
    assert run["steps"][-1][1] == 300


def test_the_controls_of_the_script_are_hidden_without_it(page: Node) -> None:
    assert "hidden" in page.by_id("inspector").attributes


def test_many_events_are_divided_and_the_first_are_open(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(2)
    for _ in range(EVENTS_PER_TABLE + 10):
        recorded_run.wait(1.0).write("gpu-0", "restore", step=1)

    parts = list(parse(page_of(recorded_run)).by_id("events").all("details"))

    assert ["open" in part.attributes for part in parts] == [True, False]
    assert len(list(parts[1].all("tr"))) == 1 + 10


def test_the_page_of_an_empty_run_has_a_headline_and_no_sections() -> None:
    page = parse(render(build_page(RecordedRun().run(), 1000.0, BILLING)))

    assert [node.text for node in page.all("h1")] == ["No training yet"]
    assert not list(page.all("section"))


def test_the_costs_of_several_pools_are_a_table(drill_run: RecordedRun) -> None:
    page_with_one_pool = page_of(drill_run, Billing(billed=True, rates=BY_POOL))
    machines = {"gpu-0": ReportedMachine(A100), "gpu-1": ReportedMachine(T4_SPOT)}
    billing = Billing(billed=True, rates=BY_POOL, machines=machines)

    page_with_two_pools = page_of(drill_run, billing)

    assert "Training machines by pool" not in page_with_one_pool
    for cell in ("Training machines by pool", "a, spot", "b, spot", "unknown pool"):
        assert cell in page_with_two_pools


def test_a_spot_price_above_the_on_demand_price_saves_nothing(drill_run: RecordedRun) -> None:
    rates = Rates(most_expensive=MachineRate("spot", 0.5, 0.2), fixed=0.6, as_of="2026-11-01")

    text = page_of(drill_run, Billing(billed=True, rates=rates))

    assert "nothing" in parse(text).by_id("money").text
    assert "$-" not in text
    assert "-$" not in text


def test_moves_are_a_table_with_their_reasons_and_costs(drill_run: RecordedRun) -> None:
    page = parse(page_of(two_zones(), Billing(billed=True, rates=BY_POOL)))

    cells = [cell.text for cell in page.by_id("moves").all("td")]
    assert cells[:5] == ["zone-a", "zone-b", "zone-b offers 2 machines", "3.0 s", "0"]
    assert "machine-minutes, $" in cells[5]
    assert 'id="moves"' not in page_of(drill_run)


def test_the_costs_include_the_data_between_zones(drill_run: RecordedRun) -> None:
    machines = {f"gpu-{n}": ReportedMachine(T4_SPOT, f"zone-{n}") for n in range(4)}
    billing = Billing(billed=True, rates=BY_POOL, machines=machines)

    assert "GB of gradients" in parse(page_of(two_zones(), billing)).by_id("money").text
    assert "GB of gradients" not in page_of(drill_run, Billing(billed=True, rates=BY_POOL))


def test_a_move_is_one_of_the_events() -> None:
    events = parse(page_of(two_zones())).by_id("events")

    (row,) = (row.text for row in events.all("tr") if "to zone-b" in row.text)
    assert "The controller moved the group from zone-a to zone-b." in row


def test_a_move_under_way_has_no_figures() -> None:
    recorded_run = RecordedRun().form("gpu-0").train(10).begin_move().train(3)

    cells = [cell.text for cell in parse(page_of(recorded_run)).by_id("moves").all("td")]
    assert cells[3:] == ["under way", UNKNOWN, UNKNOWN]
