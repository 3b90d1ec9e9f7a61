"""The workflow `integrations`, run by `act` with a Makefile of the test."""

import pytest

from tests.github.act import Repository

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

TARGETS = ("test-browser", "test-staging", "test-trackers")
MAKEFILE = """
.venv/.%:
	@true
test-%:
	@echo this is $@
"""


def test_every_target_has_a_job(changed_repository: Repository) -> None:
    (changed_repository.folder / "Makefile").write_text(MAKEFILE)

    run = changed_repository.run("integrations", "pull_request")

    assert run.is_green, run.log
    assert len(run.jobs) == len(TARGETS)
    assert all(f"this is {target}" in run.log for target in TARGETS)


def test_a_failure_of_one_target_is_red_and_the_others_still_run(
    changed_repository: Repository,
) -> None:
    failing_target = "test-staging:\n\t@echo a server does not start; exit 1\n"
    (changed_repository.folder / "Makefile").write_text(MAKEFILE + failing_target)

    run = changed_repository.run("integrations", "pull_request")

    # `act` reports all later jobs of a matrix as failed too.
    assert "failure" in run.jobs.values(), run.log
    assert "this is test-trackers" in run.log, "one failure must not hide another"
