"""Static checks of the lab's notebooks."""

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.guides.words import unknown_words
from tests.notebooks.notebook import CHOICE_TAG, FOLDER, PATHS, Cell, copy_notebooks, read_cells

BILLED_COMMANDS = ("everstep up", "everstep node reclaim")
"""Commands that increase the costs of an account."""

WARNING = "# COSTS MONEY"
LINK = re.compile(r"\]\(([^)#]*)(?:#([^)]*))?\)")

every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list[Cell]:
    return [cell for cell in read_cells(path) if cell.is_code]


def choices(paths: Iterable[Path]) -> set[str]:
    """Return the different texts of the cells with the user's choices."""
    cells = [cell for path in paths for cell in read_cells(path)]
    return {cell.source for cell in cells if CHOICE_TAG in cell.tags}


def commands(path: Path) -> list[str]:
    """Return the command lines of a notebook that call everstep."""
    lines = [line.strip() for cell in code_cells(path) for line in cell.source.splitlines()]
    return [line.partition(" | ")[0] for line in lines if line.startswith("everstep ")]


def test_the_steps_are_numbered_from_the_environment_to_the_eviction() -> None:
    assert [path.stem for path in PATHS] == [
        "0-environment",
        "1-infrastructure",
        "2-elastic-script",
        "3-spot-pool",
        "4-eviction",
    ]


@every_notebook
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    cells_with_output = [
        cell.id for cell in code_cells(path) if cell.output or cell.execution_count is not None
    ]

    assert cells_with_output == [], (
        "outputs belong to one run on one machine: clear them before a commit"
    )


@every_notebook
def test_a_notebook_has_the_format_whose_cells_have_identifiers(path: Path) -> None:
    notebook = json.loads(path.read_text())
    identifiers = [cell.id for cell in read_cells(path)]

    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len(set(identifiers)) == len(identifiers)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"


@every_notebook
def test_a_cell_that_costs_money_in_an_account_begins_with_a_warning(path: Path) -> None:
    for cell in code_cells(path):
        if any(command in cell.source for command in BILLED_COMMANDS):
            first_line = cell.source.splitlines()[1]  # below %%bash
            assert first_line.startswith(WARNING), f"{path.stem}: {cell.id}"


def test_the_lab_has_cells_that_cost_money_and_a_cell_that_ends_the_costs() -> None:
    sources = [cell.source for path in PATHS for cell in code_cells(path)]

    assert sum(WARNING in source for source in sources) == 3
    assert sum("everstep down --yes" in source for source in sources) == 1


@every_notebook
def test_nothing_is_bought_unless_the_user_chooses_an_account(path: Path) -> None:
    needs_a_choice = any("$TWIN" in cell.source for cell in code_cells(path))

    assert len(choices([path])) == int(needs_a_choice)
    assert all("ACCOUNT = False  #" in choice for choice in choices([path]))


def test_all_notebooks_have_the_same_choices() -> None:
    assert len(choices(PATHS)) == 1


def test_a_copy_of_the_notebooks_chooses_its_cloud(tmp_path: Path) -> None:
    (choice,) = choices(copy_notebooks(tmp_path / "notebooks", "aks"))

    assert 'CLOUD = "aks"  #' in choice


@every_notebook
def test_a_command_on_a_stack_uses_the_twin_or_the_chosen_account(path: Path) -> None:
    for command in commands(path):
        words = command.split()
        if "--stack" in words and words[1] not in ("init", "cost", "doctor"):
            assert "$TWIN" in words or "--twin" in words, command


def test_the_commands_of_the_lab_are_found() -> None:
    assert any(commands(path) for path in PATHS), "the tests of commands would check nothing"


@every_notebook
def test_every_command_and_option_of_everstep_exists(path: Path) -> None:
    assert {text: unknown for text in commands(path) if (unknown := unknown_words(text))} == {}


class Recovery:
    """The condition on which the cells of step 4 wait after an eviction, with reports of our own.

    Attributes:
        nodes: names of the GPU nodes.
        report: the report of the training; a cloud records no events.
    """

    def __init__(self) -> None:
        self.nodes = ["gpu-0", "gpu-1", "gpu-2"]
        self.report: dict[str, Any] = {}

    def resize(self, *sizes: int) -> None:
        """Append sizes of the group to the report."""
        observed = self.report.setdefault("world_sizes", [])
        for size in sizes:
            observed.append({"at": 100.0 + len(observed), "world_size": size})

    def choose_node(self) -> Callable[[], object]:
        """Execute the cells up to the wait; return the condition."""
        cells = {cell.id: cell.source for cell in read_cells(PATHS[4])}
        conditions: list[Callable[[], object]] = []
        names: dict[str, Any] = {
            "gpu_nodes": lambda: self.nodes,
            "report": lambda: self.report,
            "wait_until": lambda _, condition: conditions.append(condition),
        }
        exec(cells["node"] + "\n" + cells["recover"], names)
        return conditions[0]


@pytest.fixture
def recovery(monkeypatch: pytest.MonkeyPatch) -> Recovery:
    monkeypatch.setenv("NODE", "")
    recovery = Recovery()
    recovery.resize(1, 3)
    return recovery


def test_the_recovery_from_an_eviction_is_found_without_events(recovery: Recovery) -> None:
    """Otherwise "Run all" in an account would stop before the cell that ends all costs."""
    has_recovered = recovery.choose_node()

    recovery.resize(2, 3)
    recovery.nodes = ["gpu-1", "gpu-2", "gpu-3"]

    assert has_recovered()


def test_a_group_that_grew_before_the_eviction_has_not_recovered(recovery: Recovery) -> None:
    has_recovered = recovery.choose_node()

    recovery.nodes = ["gpu-1", "gpu-2"]
    assert not has_recovered(), "the two sizes are older than the eviction"
    recovery.resize(2)
    assert not has_recovered(), "the third worker is missing"


def test_the_group_has_not_recovered_while_the_evicted_node_is_ready(recovery: Recovery) -> None:
    has_recovered = recovery.choose_node()

    recovery.resize(2, 3)

    assert not has_recovered()


def test_a_report_that_fails_does_not_end_the_wait_for_the_recovery(recovery: Recovery) -> None:
    has_recovered = recovery.choose_node()

    recovery.report = {}

    assert not has_recovered()


def test_the_cost_of_an_eviction_in_an_account_needs_no_events(
    recovery: Recovery, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TWIN", "")
    recovery.choose_node()
    recovery.resize(2, 3)
    capsys.readouterr()
    (losses,) = (cell.source for cell in read_cells(PATHS[4]) if cell.id == "losses")

    exec(losses, {"os": os, "newer_sizes": lambda: recovery.report["world_sizes"][2:]})

    assert capsys.readouterr().out.split("\n") == ["    0 s  2 workers", "    1 s  3 workers", ""]


@every_notebook
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    links = [
        link for cell in read_cells(path) if not cell.is_code for link in LINK.findall(cell.source)
    ]

    assert links, "each step leads to the next one"
    for file, anchor in links:
        page = FOLDER / file
        assert page.exists(), file
        headings = re.findall(r"(?m)^#+ (.*)$", page.read_text()) if anchor else []
        assert not anchor or anchor in {heading.lower().replace(" ", "-") for heading in headings}
