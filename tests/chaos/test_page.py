"""The page about chaos tests lists all faults and all invariants."""

from pathlib import Path

import pytest

from tests.chaos.checker import INVARIANTS
from tests.chaos.schedule import KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "chaos.md").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_describes_every_kind_of_fault(kind: str) -> None:
    assert f"`{kind}`" in PAGE


@pytest.mark.parametrize("name", INVARIANTS)
def test_the_page_describes_every_invariant(name: str) -> None:
    assert f"| {name} |" in PAGE
