"""The page about chaos tests lists all faults and all invariants."""

import re
from pathlib import Path

import pytest

from tests.chaos.checker import INVARIANTS
from tests.chaos.run import FAULTS_PER_SEED
from tests.chaos.schedule import KINDS

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "chaos.md").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_describes_every_kind_of_fault(kind: str) -> None:
    assert f"`{kind}`" in PAGE


@pytest.mark.parametrize("name", INVARIANTS)
def test_the_page_describes_every_invariant(name: str) -> None:
    assert f"| {name} |" in PAGE


@pytest.mark.parametrize("name", ["docs/chaos.md", "CONTRIBUTING.md"])
def test_pages_state_the_number_of_faults_of_the_command(name: str) -> None:
    command = re.search(
        r"make test-chaos SEEDS=(\d+) +# (\d+) faults", (REPOSITORY / name).read_text()
    )

    assert command is not None
    seeds, faults = map(int, command.groups())
    assert faults == seeds * FAULTS_PER_SEED
