"""The workflows `lab`, `scan` and `site`, run by `act` with a Makefile of the test."""

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


def run_with(repository: Repository, workflow: str, result: str) -> WorkflowRun:
    """Run a workflow whose target ends with this shell command."""
    makefile = MAKEFILE.format(target=TARGETS[workflow], result=result)
    (repository.folder / "Makefile").write_text(makefile)
    matrix = {"cloud": "eks"} if workflow == "lab" else None
    return repository.run(workflow, "pull_request", matrix=matrix)


@pytest.mark.parametrize("workflow", TARGETS)
def test_a_pull_request_is_green_if_its_target_passes(
    repository: Repository, workflow: str
) -> None:
    run = run_with(repository, workflow, "exit 0")

    assert run.is_green, run.log
    assert f"this is {TARGETS[workflow]}" in run.log


@pytest.mark.parametrize("workflow", TARGETS)
def test_a_pull_request_is_red_if_its_target_fails(repository: Repository, workflow: str) -> None:
    run = run_with(repository, workflow, "exit 1")

    assert f"this is {TARGETS[workflow]}" in run.log
    assert set(run.jobs.values()) == {"failure"}, run.log


def test_the_notebooks_of_a_failed_run_are_kept(repository: Repository) -> None:
    run = run_with(repository, "lab", "exit 1")

    (upload,) = run.calls("actions/upload-artifact")
    assert upload["path"] == "build/notebooks/eks"


def test_the_site_of_a_pull_request_is_not_published(repository: Repository) -> None:
    run = run_with(repository, "site", "exit 0")

    assert run.is_green, run.log
    assert not run.calls("actions/deploy-pages")
