"""The workflow `pull request`, run by `act`."""

from typing import Any

import pytest

from tests.github.act import REPOSITORY, Repository

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

STACKS = ("eks-dev", "eks-prod", "aks-dev", "aks-prod")
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


def test_a_violation_of_a_mandatory_policy_is_red(repository: Repository) -> None:
    repository.replace(
        "components/platform/elastic_controller.py",
        'limits={"memory": CONTROLLER_MEMORY_LIMIT}',
        "limits={}",
    )

    run = repository.run(
        "pull-request", "pull_request", job="offline-preview", matrix={"stack": "eks-dev"}
    )

    assert list(run.jobs.values()) == ["failure"], run.log
    assert "containers-have-limits" in run.log, "the log must name the policy"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kubernetesVersion:", "kubernetesVersoin:", "kubernetesVersoin"),
        ("instanceTypes: [g5.xlarge", "instanceTypes: [g5.xlrage", "g5.xlrage"),
    ],
    ids=["unknown key", "unknown type"],
)
def test_the_preview_of_a_stack_that_is_refused_is_red(
    repository: Repository, old: str, new: str, message: str
) -> None:
    repository.replace("stacks/Pulumi.eks-dev.yaml", old, new)

    run = repository.run(
        "pull-request", "pull_request", job="offline-preview", matrix={"stack": "eks-dev"}
    )

    assert list(run.jobs.values()) == ["failure"], run.log
    assert message in run.log, "the log must name the error"


def test_a_failure_of_any_check_is_red_and_nothing_reaches_the_cloud(
    repository: Repository,
) -> None:
    repository.write_program(".ci/run", "echo a test failed; exit 1")
    _skip_the_twin(repository)

    run = repository.run(
        "pull-request", "pull_request", payload=pull_request(), variables=BACKEND, matrix=ONE_STACK
    )

    assert run.jobs["pull request/.ci/run"] == "failure", run.log
    assert not run.calls("pulumi/actions"), "an untested change must not reach the cloud"


def test_a_branch_of_the_repository_is_previewed_in_the_cloud_and_commented(
    repository: Repository,
) -> None:
    repository.write_program(".ci/run", "exit 0")
    _skip_the_twin(repository)

    run = repository.run(
        "pull-request", "pull_request", payload=pull_request(), variables=BACKEND, matrix=ONE_STACK
    )

    assert run.is_green, run.log
    (preview,) = run.calls("pulumi/actions")
    assert preview["stack-name"] == "eks-dev"
    assert preview["command"] == "preview"
    assert preview["comment-on-pr"] == "true"
    assert preview["policypacks"] == "policy", "a policy must be able to stop a preview"


def test_a_team_with_one_cloud_previews_its_stacks_only(repository: Repository) -> None:
    repository.write_program(".ci/run", "exit 0")
    _skip_the_twin(repository)

    run = repository.run(
        "pull-request",
        "pull_request",
        payload=pull_request(),
        variables={**BACKEND, "STACKS": '["aks-dev"]'},
    )

    assert run.is_green, run.log
    assert [call["stack-name"] for call in run.calls("pulumi/actions")] == ["aks-dev"]


@pytest.mark.parametrize(
    ("head", "variables"),
    [("stranger/everstep", BACKEND), (REPOSITORY, {})],
    ids=["a fork", "no backend"],
)
def test_the_cloud_is_not_reached(
    repository: Repository, head: str, variables: dict[str, str]
) -> None:
    repository.write_program(".ci/run", "exit 0")
    _skip_the_twin(repository)

    run = repository.run(
        "pull-request",
        "pull_request",
        payload=pull_request(head),
        variables=variables,
        matrix=ONE_STACK,
    )

    assert run.is_green, run.log
    assert not run.calls("aws-actions/configure-aws-credentials")
    assert not run.calls("pulumi/actions")


def _skip_the_twin(repository: Repository) -> None:
    """Replace the previews on the twin, which other tests run."""
    repository.replace(
        ".github/workflows/pull-request.yaml", "everstep preview --stack", "echo preview of"
    )
