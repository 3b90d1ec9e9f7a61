"""The workflow `pull request`, run by `act`."""

from pathlib import Path
from typing import Any

import pytest

from tests.github.act import REPOSITORY, Repository

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

STACKS = ("eks-dev", "aks-dev")
"""A stack of each cloud; tests/components/test_stacks_declared.py checks the policies for the production stacks, and
tests/program/test_killed_up.py creates them."""

ONE_STACK = {"stack": "eks-dev"}
BACKEND = {"PULUMI_BACKEND_URL": "s3://state"}


def pull_request(head: str = REPOSITORY) -> dict[str, Any]:
    return {"pull_request": {"head": {"repo": {"full_name": head}, "ref": "change"}}}


@pytest.mark.parametrize("stack", STACKS)
def test_the_preview_of_a_valid_stack_on_the_twin_is_green_and_in_the_summary(
    repository: Repository, stack: str
) -> None:
    run = repository.run(
        "pull-request", "pull_request", job="offline-preview", matrix={"stack": stack}
    )

    assert run.is_green, run.log
    assert f"### {stack} on the twin" in run.summary
    assert "to create" in run.summary, "reviewers read the preview in the summary"
    assert "USD" in run.summary, "reviewers read the cost in the summary"


def test_a_violation_of_a_mandatory_policy_is_red(changed_repository: Repository) -> None:
    changed_repository.replace(
        "components/platform/elastic_controller.py",
        'limits={"memory": CONTROLLER_MEMORY_LIMIT}',
        "limits={}",
    )

    run = changed_repository.run(
        "pull-request", "pull_request", job="offline-preview", matrix={"stack": "eks-dev"}
    )

    assert list(run.jobs.values()) == ["failure"], run.log
    assert "containers-have-limits" in run.log, "the log must name the policy"


def test_the_preview_of_a_stack_that_is_refused_is_red(changed_repository: Repository) -> None:
    changed_repository.replace(
        "stacks/Pulumi.eks-dev.yaml", "instanceTypes: [g5.xlarge", "instanceTypes: [g5.xlrage"
    )

    run = changed_repository.run(
        "pull-request", "pull_request", job="offline-preview", matrix={"stack": "eks-dev"}
    )

    assert list(run.jobs.values()) == ["failure"], run.log
    assert "g5.xlrage" in run.log, "the log must name the error"


@pytest.fixture(scope="module")
def without_twin(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a copy in which all checks pass, without the previews on the twin, which other tests run."""
    changed = repository.copy(tmp_path_factory.mktemp("without_twin"))
    changed.write_program(".ci/run", "exit 0")
    workflow = ".github/workflows/pull-request.yaml"
    changed.replace(workflow, "everstep preview --stack", "echo preview of")
    changed.replace(workflow, "everstep cost --stack", "echo cost of")
    return changed


def test_a_failure_of_any_check_is_red_and_nothing_reaches_the_cloud(
    without_twin: Repository, tmp_path: Path
) -> None:
    failing = without_twin.copy(tmp_path)
    failing.write_program(".ci/run", "echo a test failed; exit 1")

    run = failing.run(
        "pull-request", "pull_request", payload=pull_request(), variables=BACKEND, matrix=ONE_STACK
    )

    assert run.jobs["pull request/.ci/run"] == "failure", run.log
    assert not run.calls("pulumi/actions"), "an untested change must not reach the cloud"


def test_the_stacks_of_a_team_are_previewed_in_the_cloud_for_a_branch_of_the_repository(
    without_twin: Repository,
) -> None:
    variables = {**BACKEND, "STACKS": '["aks-dev"]'}

    run = without_twin.run(
        "pull-request", "pull_request", payload=pull_request(), variables=variables
    )

    assert run.is_green, run.log
    (preview,) = run.calls("pulumi/actions")
    assert preview["stack-name"] == "aks-dev", "the team has only this stack"
    assert preview["command"] == "preview"
    assert preview["comment-on-pr"] == "true"
    assert preview["policypacks"] == "policy", "a policy must be able to stop a preview"
    assert "USD" in run.summary, "reviewers read the cost in the summary"


@pytest.mark.parametrize(
    ("head", "variables"),
    [("stranger/everstep", BACKEND), (REPOSITORY, {})],
    ids=["a fork", "no backend"],
)
def test_the_cloud_is_not_reached(
    without_twin: Repository, head: str, variables: dict[str, str]
) -> None:
    run = without_twin.run(
        "pull-request",
        "pull_request",
        payload=pull_request(head),
        variables=variables,
        matrix=ONE_STACK,
    )

    assert run.is_green, run.log
    assert not run.calls("aws-actions/configure-aws-credentials")
    assert not run.calls("pulumi/actions")
