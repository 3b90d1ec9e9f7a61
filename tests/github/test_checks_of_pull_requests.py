"""The workflows `lab`, `scan` and `site`, run by `act` with a Makefile of the test."""

from collections.abc import Callable
from functools import cache

import pytest

from tests.github.act import Repository, WorkflowRun

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

TARGETS = {"lab": "test-notebooks", "scan": "scan", "site": "site"}
"""Workflow -> the target of make that it runs."""

MAKEFILE = """
.venv/.%:
	@true
{target}:
	@mkdir -p build/notebooks/eks build/site
	@touch build/notebooks/eks/1.html build/site/index.html
	@echo this is $@ $(CLOUD); {result}
"""


Run = Callable[[str, str], WorkflowRun]


@pytest.fixture(scope="module")
def run_with(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a function that runs a workflow whose target ends with this shell command, once for each pair."""
    changed = repository.copy(tmp_path_factory.mktemp("checks"))

    @cache
    def run(workflow: str, result: str) -> WorkflowRun:
        makefile = MAKEFILE.format(target=TARGETS[workflow], result=result)
        (changed.folder / "Makefile").write_text(makefile)
        matrix = {"cloud": "eks"} if workflow == "lab" else None
        return changed.run(workflow, "pull_request", matrix=matrix)

    return run


@pytest.mark.parametrize("workflow", TARGETS)
def test_a_pull_request_is_green_if_its_target_passes(run_with: Run, workflow: str) -> None:
    run = run_with(workflow, "exit 0")

    assert run.is_green, run.log
    assert f"this is {TARGETS[workflow]}" in run.log


@pytest.mark.parametrize("workflow", TARGETS)
def test_a_pull_request_is_red_if_its_target_fails(run_with: Run, workflow: str) -> None:
    run = run_with(workflow, "exit 1")

    assert f"this is {TARGETS[workflow]}" in run.log
    assert set(run.jobs.values()) == {"failure"}, run.log


def test_the_notebooks_of_a_failed_run_are_kept(run_with: Run) -> None:
    run = run_with("lab", "exit 1")

    (upload,) = run.calls("actions/upload-artifact")
    assert upload["path"] == "build/notebooks/eks"


def test_the_site_of_a_pull_request_is_not_published(run_with: Run) -> None:
    run = run_with("site", "exit 0")

    assert run.is_green, run.log
    assert not run.calls("actions/deploy-pages")
