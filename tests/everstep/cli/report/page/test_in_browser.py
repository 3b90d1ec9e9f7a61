"""The page in Debian's Chromium: `make test-browser`.

The structure of the page is tested without a browser in test_render.py. Here its behavior in a browser is tested:
layout, keyboard navigation, the Content Security Policy, and the accessibility tree.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.cli.report.money import Billing
from everstep.cli.report.page.model import build_page
from everstep.cli.report.page.render import render
from tests.chromium import DESKTOP, PHONE, Tab, browser
from tests.everstep.cli.recorded_run import drill

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

FOCUSED_ELEMENT = "document.activeElement"
CONTRASTS = """
(() => {
  const style = getComputedStyle(document.documentElement);
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const luminance = name => {
    canvas.fillStyle = style.getPropertyValue(name);
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(
      c => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = luminance('--paper');
  return Object.fromEntries(NAMES.map(name => {
    const [low, high] = [paper, luminance(name)].sort((a, b) => a - b);
    return [name, (high + 0.05) / (low + 0.05)];
  }));
})()
"""
TEXTS = ("--ink", "--soft")
SHAPES = (
    "--training",
    "--regrouping",
    "--gone",
    "--waiting",
    "--gain",
    "--note",
    "--curve",
    "--focus",
)


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browser() as tab:
        yield tab


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    recorded_run = drill()
    billing = Billing(billed=False, reason="it ran here")
    path.write_text(render(build_page(recorded_run.run(), recorded_run.now + 1, billing)))
    return path


def test_the_content_security_policy_allows_style_and_script_and_nothing_is_requested(
    tab: Tab, page: Path
) -> None:
    tab.open(page)

    assert tab.run("document.getElementById('inspector').hidden") is False, "the script runs"
    assert tab.run("getComputedStyle(document.querySelector('.row')).display") == "grid"
    requested_urls = [
        event["params"]["request"]["url"]
        for event in tab.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    assert [url for url in requested_urls if not url.startswith("data:")] == [page.as_uri()]
    faults = ("Runtime.exceptionThrown", "Log.entryAdded")
    assert [event for event in tab.events if event.get("method") in faults] == []


def test_without_its_script_the_page_has_everything_but_the_slider(tab: Tab, page: Path) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        tab.open(page)
        tree = tab.call("Accessibility.getFullAXTree")["nodes"]
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)

    roles = [node["role"]["value"] for node in tree if not node["ignored"]]
    assert "slider" not in roles
    assert "table" in roles
    assert roles.count("link") >= 5, "the skip link and four events"


@pytest.mark.parametrize("colors", ["light", "dark"])
@pytest.mark.parametrize("screen", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_the_page_fits_the_screen(
    tab: Tab, page: Path, screen: dict[str, object], colors: str
) -> None:
    tab.open(page, screen, prefers_color_scheme=colors)

    assert tab.run("innerWidth") == screen["width"]
    assert tab.run("document.documentElement.scrollWidth") == screen["width"]
    tab.run("document.querySelectorAll('details').forEach(one => one.open = true)")
    assert tab.run("document.documentElement.scrollWidth") == screen["width"], (
        "no horizontal scrolling, even with open details"
    )


@pytest.mark.parametrize("colors", ["light", "dark"])
def test_colors_contrast_with_the_background(tab: Tab, page: Path, colors: str) -> None:
    """WCAG 2.2 requires a ratio of 4.5 for text and of 3 for shapes."""
    tab.open(page, DESKTOP, prefers_color_scheme=colors)

    contrasts = tab.run(CONTRASTS.replace("NAMES", str([*TEXTS, *SHAPES])))

    assert {name: value for name, value in contrasts.items() if value < 3} == {}
    assert {name: contrasts[name] for name in TEXTS if contrasts[name] < 4.5} == {}


def test_the_keyboard_reaches_events_and_seconds(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.press("Tab")
    assert tab.run(f"{FOCUSED_ELEMENT}.textContent") == "Skip to the events"
    assert tab.run(f"{FOCUSED_ELEMENT}.getBoundingClientRect().top") >= 0, "it is visible"

    tab.press("Tab")
    tab.press("End")
    assert tab.run(f"{FOCUSED_ELEMENT}.id") == "second"
    assert "step 300" in tab.run(f"{FOCUSED_ELEMENT}.getAttribute('aria-valuetext')")
    assert "gpu-2 training" in tab.run("document.getElementById('reading').textContent")

    tab.run("document.querySelector('a.mark[tabindex=\"0\"]').focus()")
    label = tab.run(f"{FOCUSED_ELEMENT}.getAttribute('aria-label')")
    tab.press("ArrowRight")
    assert "drain gpu-1" in label
    assert "return gpu-1" in tab.run(f"{FOCUSED_ELEMENT}.getAttribute('aria-label')")
    assert tab.run(f"{FOCUSED_ELEMENT}.matches(':focus-visible')")
    tab.press("Enter")
    assert tab.run("document.querySelector(':target').id") == "event-2"


def test_zooming_in_shows_a_part_of_the_chart_and_zooming_out_all_of_it(
    tab: Tab, page: Path
) -> None:
    tab.open(page)
    view_box = "document.querySelector('.stretched').getAttribute('viewBox')"
    ticks = "[...document.querySelectorAll('#axis text')].map(one => one.textContent).join(' ')"
    full_range, all_ticks = tab.run(view_box), tab.run(ticks)

    tab.run("document.getElementById('zoom-in').click()")
    zoomed_range = tab.run(view_box)
    assert float(zoomed_range.split()[2]) == pytest.approx(
        float(full_range.split()[2]) / 4, rel=0.01
    )
    assert tab.run(ticks) != all_ticks
    tab.run("document.getElementById('zoom-all').click()")
    assert (tab.run(view_box), tab.run(ticks)) == (full_range, all_ticks)


def test_the_accessibility_tree_has_headings_a_named_slider_and_the_cells_of_the_table(
    tab: Tab, page: Path
) -> None:
    for screen in (DESKTOP, PHONE):
        tab.open(page, screen)
        tree = tab.call("Accessibility.getFullAXTree")["nodes"]
        roles = [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree
            if not node["ignored"]
        ]

        assert ("heading", "Training survived both losses of workers") in roles
        assert ("slider", "Second") in roles
        assert sum(role == "row" for role, _ in roles) >= 5, "even where rows are stacked"
        assert [role for role, name in roles if role in ("link", "button") and not name] == []


def test_reduced_motion_is_respected(tab: Tab, page: Path) -> None:
    tab.open(page, DESKTOP, prefers_reduced_motion="reduce")

    assert tab.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"


def test_a_printed_page_has_open_details_and_no_controls(tab: Tab, page: Path) -> None:
    tab.open(page)
    tab.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert tab.run("getComputedStyle(document.getElementById('inspector')).display") == "none"
        assert tab.run("document.querySelector('details table').getBoundingClientRect().height") > 0
    finally:
        tab.call("Emulation.setEmulatedMedia", media="")
    assert tab.pdf().startswith(b"%PDF")
