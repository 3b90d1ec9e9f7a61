"""The notebooks of the lab on the twin, executed from the first cell to the last.

    make test-notebooks              # both clouds
    make test-notebooks CLOUD=eks    # one of them

An execution takes minutes, so all tests of a cloud share it; each test checks one guarantee. The executed
notebooks are in build/notebooks.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout

from everstep.progress import Silent
from tests.notebooks.notebook import PATHS, ROOT, copy_notebooks, execute, read_cells

CLOUDS = ("eks", "aks")
CELL_SECONDS, DOWN_SECONDS = 2400, 300
PROGRAMS = Path(sys.executable).parent

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3 * CELL_SECONDS)]


@dataclass(frozen=True)
class Lab:
    """The notebooks of one cloud after their execution.

    Attributes:
        folder: folder of the notebooks.
        state: folder of the twins.
    """

    folder: Path
    state: Path

    def output(self, step: int, cell: str) -> str:
        """Return the output of a notebook's cell."""
        (output,) = (
            cell_of_notebook.output
            for cell_of_notebook in read_cells(self.folder / PATHS[step].name)
            if cell_of_notebook.id == cell
        )
        return output


def remove_leftovers(state: Path, folder: Path, environment: Mapping[str, str], stack: str) -> None:
    """Remove the leftovers of a failed notebook."""
    if not (state / stack).exists():
        return
    command = ["everstep", "down", "--yes", "--stack", stack, "--twin"]
    subprocess.run(command, cwd=folder, env=environment, timeout=DOWN_SECONDS, check=False)
    if (state / stack).exists():
        Twin(Layout(state / stack)).down(Silent())


@pytest.fixture(scope="module", params=CLOUDS)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Execute all notebooks of a cloud; the twin is always taken down."""
    base = tmp_path_factory.mktemp(request.param)
    lab = Lab(base / "notebooks", base / "state")
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(PROGRAMS), os.environ["PATH"]]),
        "EVERSTEP_STATE": str(lab.state),
        "IPYTHONDIR": str(base / "ipython"),
    }
    try:
        for path in copy_notebooks(lab.folder, request.param):
            execute(path, environment, CELL_SECONDS)
        yield lab
    finally:
        remove_leftovers(lab.state, lab.folder / "training", environment, f"{request.param}-dev")
        results = ROOT / "build" / "notebooks" / request.param
        shutil.rmtree(results, ignore_errors=True)
        shutil.copytree(lab.folder, results, ignore=shutil.ignore_patterns("training", "script"))


def test_the_machine_is_checked_before_anything_starts(lab: Lab) -> None:
    assert "machine" in lab.output(0, "doctor")
    assert "needs no account" in lab.output(0, "account-check")


def test_the_costs_and_the_resources_are_shown_before_they_are_created(lab: Lab) -> None:
    assert "USD" in lab.output(1, "cost")
    assert "to create" in lab.output(1, "preview")
    assert "CHANGE" in lab.output(1, "settings"), (
        "users of a cloud account have to edit these lines"
    )


def test_one_worker_on_one_spot_machine_trains_first(lab: Lab) -> None:
    output = lab.output(1, "first-step")

    assert "the first step is completed" in output
    (nodes,) = re.findall(r"GPU nodes: (.*)", output)
    assert len(nodes.split()) == 1, "the autoscaler adds as many nodes as there are workers"


def test_the_script_loses_a_worker_and_no_step(lab: Lab) -> None:
    output = lab.output(2, "end")

    assert "exit code: 0" in output
    assert "steps: 1000 of 1000" in output


def test_only_the_job_changes_and_it_grows_to_three_workers_while_it_trains(lab: Lab) -> None:
    assert "1 to update" in lab.output(3, "previewed")
    assert "to replace" not in lab.output(3, "previewed")
    sizes = re.findall(r"(\d) workers", lab.output(3, "sizes"))
    assert sizes[0] == "1"
    assert "3" in sizes, "on a busy host, the job may lose a worker again"


def test_an_eviction_costs_no_step_and_the_machine_is_replaced(lab: Lab) -> None:
    (nodes_before,) = re.findall(r"GPU nodes: (.*)", lab.output(4, "node"))
    (nodes_after,) = re.findall(r"GPU nodes: (.*)", lab.output(4, "recover"))

    assert min(nodes_before.split()) not in nodes_after.split()
    assert len(nodes_after.split()) == 3
    assert f"{min(nodes_before.split())}: next step after" in lab.output(4, "losses")
    assert "0 steps lost" in lab.output(4, "losses")


def test_the_training_is_followed_and_left_running(lab: Lab) -> None:
    output = lab.output(3, "live")

    assert re.search(r"step \d+/\d+ .*loss \d", output)
    assert "The training continues" in output


def test_the_teardown_leaves_nothing(lab: Lab) -> None:
    assert "nothing is left" in lab.output(4, "down")
    assert not lab.state.exists()
