"""The workflows `deploy`, `drift` and `teardown`, run by `act`."""

import json

import pytest

from tests.github.act import BACKEND, Repository, WorkflowRun

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

STACKS = ["aks-dev", "aks-prod", "eks-dev", "eks-prod"]


def commands(run: WorkflowRun) -> list[str]:
    """Return the commands that Pulumi ran, each with its stack; calls that only install Pulumi are left out."""
    return sorted(
        f"{call['command']} {call['stack-name']}"
        for call in run.calls("pulumi/actions")
        if call.get("command")
    )


def logins(run: WorkflowRun, cloud: str) -> int:
    """Return the number of logins to `aws` or `azure`."""
    action = {"aws": "aws-actions/configure-aws-credentials", "azure": "azure/login"}[cloud]
    return len(run.calls(action))


def test_a_push_deploys_all_stacks_prod_after_dev_each_with_the_identity_of_its_cloud(
    repository: Repository,
) -> None:
    identities = {
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/everstep",
        "AWS_REGION": "us-east-1",
        "AZURE_CLIENT_ID": "client",
    }

    run = repository.run("deploy", "push", variables={**BACKEND, **identities})

    assert run.is_green, run.log
    order = [call["stack-name"] for call in run.calls("pulumi/actions")]
    assert sorted(order) == STACKS
    assert order.index("eks-dev") < order.index("eks-prod"), "prod gets only what dev has run"
    assert order.index("aks-dev") < order.index("aks-prod"), "prod gets only what dev has run"
    roles = [call["role-to-assume"] for call in run.calls("aws-actions/configure-aws-credentials")]
    assert roles == [identities["AWS_ROLE_ARN"]] * 4, "the state of all stacks is in S3"
    assert [call["client-id"] for call in run.calls("azure/login")] == ["client"] * 2
    assert len(run.calls("azure/use-kubelogin")) == 2


@pytest.mark.parametrize(
    ("backend", "secrets_provider", "aws", "azure"),
    [
        ("azblob://state", "azurekeyvault://vault/keys/state", 1, 2),
        ("azblob://state", "awskms://key", 2, 2),
        ("s3://state", "azurekeyvault://vault/keys/state", 2, 2),
    ],
)
def test_each_stack_logs_in_to_the_clouds_of_its_cluster_its_state_and_its_key(
    repository: Repository, backend: str, secrets_provider: str, aws: int, azure: int
) -> None:
    """The run has one stack of each cloud."""
    variables = {
        "PULUMI_BACKEND_URL": backend,
        "PULUMI_SECRETS_PROVIDER": secrets_provider,
        "STACKS": '["eks-dev", "aks-dev"]',
    }

    run = repository.run("deploy", "push", variables=variables)

    assert run.is_green, run.log
    assert logins(run, "aws") == aws, "without a login, Pulumi cannot read the state or its secrets"
    assert logins(run, "azure") == azure, (
        "without a login, Pulumi cannot read the state or its secrets"
    )
    assert len(run.calls("azure/use-kubelogin")) == 1, "only clusters of AKS need it"


def test_a_dev_stack_that_the_cloud_refuses_is_red_and_its_prod_stack_is_not_deployed(
    repository: Repository,
) -> None:
    run = repository.run(
        "deploy",
        "push",
        variables={**BACKEND, "STACKS": '["eks-dev", "eks-prod"]'},
        environment={"STAND_IN_REFUSED": "up eks-dev"},
    )

    assert not run.is_green
    assert "the cloud refuses up of eks-dev" in run.log
    assert commands(run) == ["up eks-dev"], run.log


@pytest.mark.parametrize("key", ["secretsprovider", "encryptedkey"])
def test_a_stack_without_a_committed_key_is_red_before_any_login(
    changed_repository: Repository, key: str
) -> None:
    """Pulumi would encrypt the secrets with a key that only the runner has, and no later update could read them."""
    changed_repository.replace("stacks/Pulumi.eks-dev.yaml", f"{key}:", f"# {key}:")

    run = changed_repository.run("deploy", "push", variables={**BACKEND, "STACKS": '["eks-dev"]'})

    assert not run.is_green
    assert f"stacks/Pulumi.eks-dev.yaml has no {key}" in run.log
    assert "pulumi stack init eks-dev --secrets-provider awskms://key" in run.log
    assert logins(run, "aws") == 0
    assert commands(run) == []


def test_a_stack_file_with_an_error_is_red(changed_repository: Repository) -> None:
    changed_repository.replace(
        "stacks/Pulumi.eks-dev.yaml", "kubernetesVersion:", "kubernetesVersoin:"
    )

    run = changed_repository.run(
        "deploy",
        "push",
        variables={**BACKEND, "STACKS": '["eks-dev"]'},
        environment={"STAND_IN_READS_STACK": "yes"},
    )

    assert not run.is_green
    assert "kubernetesVersoin" in run.log


@pytest.mark.parametrize(
    "stacks", [["aks-dev", "aks-prod"], ["eks-dev", "eks-prod"], ["eks-prod"], ["aks-prod"]]
)
def test_a_team_deploys_its_prod_stack_without_stacks_that_it_does_not_have(
    repository: Repository, stacks: list[str]
) -> None:
    run = repository.run("deploy", "push", variables={**BACKEND, "STACKS": json.dumps(stacks)})

    assert run.is_green, run.log
    assert commands(run) == [f"up {stack}" for stack in stacks]


def test_drift_and_teardown_of_a_team_with_one_cloud_leave_the_other_cloud_out(
    repository: Repository,
) -> None:
    variables = {**BACKEND, "STACKS": '["aks-dev", "aks-prod"]'}

    drift = repository.run("drift", "schedule", variables=variables)
    teardown = repository.run("teardown", "workflow_dispatch", variables=variables)

    assert drift.is_green, drift.log
    assert commands(drift) == ["preview aks-dev", "preview aks-prod"]
    assert teardown.is_green, teardown.log
    assert commands(teardown) == ["destroy aks-dev"]


def test_drift_is_green_while_the_cloud_equals_the_state(repository: Repository) -> None:
    run = repository.run("drift", "schedule", variables=BACKEND)

    assert run.is_green, run.log
    assert commands(run) == [f"preview {stack}" for stack in STACKS]
    for call in run.calls("pulumi/actions"):
        assert call["refresh"] == "true", "without a refresh the cloud is not read"
        assert call["expect-no-changes"] == "true", "without it a difference is green"


def test_drift_is_red_if_the_cloud_differs(repository: Repository) -> None:
    stacks = ["eks-dev", "aks-dev"]
    run = repository.run(
        "drift",
        "schedule",
        variables={**BACKEND, "STACKS": json.dumps(stacks)},
        environment={"STAND_IN_DRIFT": "yes"},
    )

    assert set(run.jobs.values()) == {"failure"}, run.log
    assert len(run.calls("pulumi/actions")) == len(stacks), (
        "one stack's drift must not hide another's"
    )


def test_the_evening_run_deletes_nothing_unless_the_repository_opted_in(
    repository: Repository,
) -> None:
    run = repository.run("teardown", "schedule", variables=BACKEND)

    assert run.exit_code == 0, run.log
    assert not run.calls("pulumi/actions"), run.log


def test_the_evening_run_destroys_the_dev_stacks_only(repository: Repository) -> None:
    run = repository.run("teardown", "schedule", variables={**BACKEND, "TEARDOWN_DEV": "true"})

    assert run.is_green, run.log
    assert commands(run) == ["destroy aks-dev", "destroy eks-dev"]


def test_a_teardown_by_hand_that_leaves_resources_is_red(repository: Repository) -> None:
    run = repository.run(
        "teardown",
        "workflow_dispatch",
        variables=BACKEND,
        environment={"STAND_IN_REFUSED": "destroy aks-dev"},
    )

    assert not run.is_green, "resources that stay are billed"
    assert commands(run) == ["destroy aks-dev", "destroy eks-dev"], (
        "one failure must not stop the other"
    )


@pytest.mark.parametrize("workflow", ["deploy", "drift", "teardown"])
def test_nothing_runs_without_a_backend(repository: Repository, workflow: str) -> None:
    run = repository.run(workflow, "workflow_dispatch")

    assert run.exit_code == 0, run.log
    assert not run.calls("pulumi/actions"), run.log
