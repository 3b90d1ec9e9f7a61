"""Pages of the repository: their links resolve, and the pages of docs/ are in the navigation of the site."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
TRACKED_PAGES = subprocess.run(
    ["git", "-C", str(ROOT), "ls-files", "*.md"], capture_output=True, text=True, check=True
).stdout.split()
PAGES = [name for name in TRACKED_PAGES if (ROOT / name).exists()]
CODE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$|``.+?``|`[^`\n]+`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
LIST_WITHOUT_BLANK_LINE = re.compile(r"^(?![ *|>#\d-])\S.*\n(?:[*-]|\d+\.) .*", re.MULTILINE)


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    navigation = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    pages = [name.removeprefix("docs/") for name in PAGES if name.startswith("docs/")]

    assert sorted(navigation_paths(navigation)) == sorted(pages), "add it to `nav` of mkdocs.yml"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_an_existing_file_and_heading(page: str) -> None:
    broken_links = [link for link in links(page) if not resolves(ROOT / page, link)]

    assert broken_links == []


@pytest.mark.parametrize("page", [name for name in PAGES if name.startswith("docs/")])
def test_a_blank_line_precedes_every_list(page: str) -> None:
    text = CODE.sub("", (ROOT / page).read_text())

    assert LIST_WITHOUT_BLANK_LINE.findall(text) == [], (
        "the site would show the items as one paragraph"
    )


def test_a_broken_link_is_found() -> None:
    page = ROOT / "docs/eks.md"

    for link in ("absent.md", "aks.md#absent", "#absent", "../absent/"):
        assert not resolves(page, link), link
    for link in ("aks.md", "aks.md#steps", "#steps", "../stacks/", "../trainer/README.md#data"):
        assert resolves(page, link), link


def navigation_paths(entry: Any) -> Iterator[str]:
    """Yield the paths in a part of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for child in entry.values() if isinstance(entry, dict) else entry:
            yield from navigation_paths(child)


def links(page: str) -> list[str]:
    """Return the relative links of a page."""
    text = CODE.sub("", (ROOT / page).read_text())
    return [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]


def resolves(page: Path, link: str) -> bool:
    """Return whether the file of a link exists and has the heading."""
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    return target.exists() and (not heading or heading in anchors(target))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    text = re.sub(r"^( *)```.*?^\1``` *$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    counts: dict[str, int] = {}
    anchors = set()
    for title in HEADING.findall(text):
        title_text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title)
        anchor = re.sub(r"[^\w\- ]", "", title_text.strip().lower()).replace(" ", "-")
        count = counts[anchor] = counts.get(anchor, -1) + 1
        anchors.add(f"{anchor}-{count}" if count else anchor)
    return frozenset(anchors)
