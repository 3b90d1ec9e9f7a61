"""The steps of the workflow `teardown` before and after the destroy, run by `act`."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.github import stand_ins
from tests.github.act import BACKEND, ROOT, Repository, WorkflowRun

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

STOP = "kubectl delete elasticjob imagenet"
EXPORT = "aws fsx create-data-repository-task fs-1"
DELETE_LOGS = "aws logs delete-log-group /aws/eks/everstep-dev/cluster"


def teardown(repository: Repository, stack: str = "eks-dev", **environment: str) -> WorkflowRun:
    """Run the workflow for one stack."""
    variables = {**BACKEND, "STACKS": f'["{stack}"]'}
    return repository.run(
        "teardown", "workflow_dispatch", variables=variables, environment=environment
    )


def run_script(
    folder: Path, name: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script of .ci with the stand-ins for programs, as a step of the workflow does."""
    stand_ins.write_programs(folder)
    return subprocess.run(
        [ROOT / ".ci" / name, *arguments],
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "STAND_IN_RECORD": str(folder / "record"),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )


def destroys(run: WorkflowRun) -> list[str]:
    """Return the stacks that Pulumi destroyed, or tried to."""
    calls = run.calls("pulumi/actions")
    return [call["stack-name"] for call in calls if call.get("command") == "destroy"]


def test_the_job_ends_and_its_files_are_exported_before_a_destroy_that_leaves_protected_resources(
    repository: Repository,
) -> None:
    run = teardown(repository)

    assert run.is_green, run.log
    assert run.programs == [
        "pulumi export eks-dev",
        "pulumi output eks-dev",
        STOP,
        EXPORT,
        "aws fsx describe-data-repository-tasks",
        DELETE_LOGS,
    ]
    (destroy,) = [call for call in run.calls("pulumi/actions") if call.get("command")]
    assert (destroy["command"], destroy["stack-name"]) == ("destroy", "eks-dev")
    assert destroy["exclude-protected"] == "true", "the bucket is protected, and would stop it"


def test_an_azure_stack_has_nothing_to_export_and_no_log_group(repository: Repository) -> None:
    run = teardown(repository, "aks-dev")

    assert run.is_green, run.log
    assert run.programs == ["pulumi export aks-dev", "pulumi output aks-dev", STOP]


def test_nothing_is_destroyed_if_data_would_be_lost(repository: Repository) -> None:
    run = teardown(repository, STAND_IN_UNPROTECTED="yes")

    assert not run.is_green
    assert "everstep:storage.keep" in run.log
    assert destroys(run) == []


@pytest.mark.parametrize(
    "kind",
    [
        "aws:s3/bucket:Bucket",
        "aws:ecr/repository:Repository",
        "azure-native:storage:StorageAccount",
        "azure-native:storage/v20240101:BlobContainer",
        "azure-native:containerregistry:Registry",
    ],
)
def test_the_preparation_refuses_to_lose_data_or_images(tmp_path: Path, kind: str) -> None:
    """Without its images, the next deployment would wait for pods that cannot start."""
    result = run_script(tmp_path, "prepare-teardown", "eks-dev", STAND_IN_UNPROTECTED_TYPE=kind)

    assert result.returncode != 0
    assert "its bucket, container or registry is not protected" in result.stdout
    assert (
        not (tmp_path / "record.programs").exists()
        or "kubectl" not in (tmp_path / "record.programs").read_text()
    ), "the job continues"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"STAND_IN_BUSY": "yes"}, "timed out waiting"),
        ({"STAND_IN_EXPORT": "FAILED"}, "did not succeed (FAILED)"),
    ],
    ids=["a job that does not end", "a failed export"],
)
def test_the_preparation_fails_if_data_would_be_lost(
    tmp_path: Path, environment: dict[str, str], message: str
) -> None:
    result = run_script(tmp_path, "prepare-teardown", "eks-dev", **environment)

    assert result.returncode != 0, "the workflow would destroy the stack"
    assert message in result.stdout


def test_a_stack_with_only_its_data_left_has_no_job_to_end(repository: Repository) -> None:
    run = teardown(repository, STAND_IN_DOWN="yes")

    assert run.is_green, "a day without a deployment is not a failure"
    assert run.programs == ["pulumi export eks-dev"]


def test_files_are_exported_and_logs_deleted_if_an_update_failed_before_the_job(
    repository: Repository,
) -> None:
    run = teardown(repository, STAND_IN_JOBLESS="yes")

    assert run.is_green, run.log
    assert run.programs == [
        "pulumi export eks-dev",
        EXPORT,
        "aws fsx describe-data-repository-tasks",
        DELETE_LOGS,
    ]
    assert destroys(run) == ["eks-dev"]


def test_the_scheduled_run_never_deletes_data(repository: Repository) -> None:
    variables = {**BACKEND, "TEARDOWN_DEV": "true"}
    run = repository.run(
        "teardown", "schedule", variables=variables, environment={"STAND_IN_UNPROTECTED": "yes"}
    )

    assert set(run.jobs.values()) == {"failure"}, run.log
    assert sorted(run.programs) == ["pulumi export aks-dev", "pulumi export eks-dev"]
    assert STOP not in run.programs, "the job continues"
    assert destroys(run) == []


def test_a_log_group_that_is_gone_is_ignored(tmp_path: Path) -> None:
    result = run_script(
        tmp_path, "finish-teardown", "everstep-dev", STAND_IN_LOGS="ResourceNotFoundException"
    )

    assert result.returncode == 0, result.stdout


def test_a_log_group_that_cannot_be_deleted_fails_the_run(repository: Repository) -> None:
    run = teardown(repository, STAND_IN_LOGS="AccessDeniedException")

    assert not run.is_green, "the next deploy would fail"
    assert "AccessDeniedException" in run.log
