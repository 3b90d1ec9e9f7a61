"""Stacks whose jobs run on the platform of another stack: their state, and the order of up and down."""

import json
from pathlib import Path

import pytest

from everstep.cli.engine import lifecycle
from everstep.cli.engine.context import StackContext, open_running_stack, open_stack
from everstep.cli.engine.driver import Engine, state_file
from everstep.cli.engine.shared_platform import (
    local_deployments,
    refuse_while_shared,
    require_platform,
)
from everstep.cli.engine.target import Target
from everstep.errors import EverstepError
from everstep.progress import Silent
from tests.everstep.cli.projects import enter_project

EKS = """config:
  everstep:tags: {owner: me, costCenter: "1", environment: dev}
  everstep:cluster: {kind: eks, publicAccess: [192.0.2.0/24]}
  everstep:etcd: {members: 5}
"""
SECOND = """config:
  everstep:platformStack: {name: eks-dev}
  everstep:job: {name: second}
"""
THIRD = """config:
  everstep:platformStack: {name: second}
  everstep:job: {name: third}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a platform, a job on it, and a job that names the wrong stack."""
    folder = tmp_path / "project"
    enter_project(folder, monkeypatch, {"eks-dev": EKS, "second": SECOND, "third": THIRD})
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "twins"))
    monkeypatch.delenv("EVERSTEP_TWIN", raising=False)
    return folder


def write_state(context: StackContext, *references: str) -> None:
    """Write the state of a stack that reads the outputs of others."""
    path = state_file(context.workspace)
    path.parent.mkdir(parents=True, exist_ok=True)
    resources = [{"type": "pulumi:pulumi:StackReference", "id": name} for name in references]
    path.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))


@pytest.mark.parametrize("twin", [False, True])
def test_a_job_has_its_state_in_the_backend_of_the_platform(twin: bool) -> None:
    job, platform = open_stack("second", twin=twin), open_stack("eks-dev", twin=twin)

    assert job.target is platform.target
    assert state_file(job.workspace).parent == state_file(platform.workspace).parent
    assert state_file(job.workspace) != state_file(platform.workspace)
    assert job.workspace.stack_file.name == "Pulumi.second.yaml"


def test_a_job_stack_has_its_own_job_and_the_configuration_of_the_platform() -> None:
    context = open_stack("second")

    assert (context.job, context.config.cluster.kind, context.config.etcd.members) == (
        "second",
        "eks",
        5,
    )


def test_commands_on_the_job_use_the_prices_and_the_registry_of_the_platform(project: Path) -> None:
    (project / "stacks" / "Pulumi.eks-dev.yaml").write_text(
        f"{EKS}  everstep:cost: {{prices: {{g5.xlarge: {{onDemand: 2.0, spot: 1.0}}}}}}\n"
        "  everstep:registry: {kind: ecr, name: everstep}\n"
    )

    config = open_stack("second").config

    assert config.cost.prices["g5.xlarge"].on_demand == 2.0
    assert config.registry.kind == "ecr"


def test_a_job_on_a_platform_on_the_twin_is_found_without_the_option() -> None:
    write_state(open_stack("eks-dev", twin=True))

    assert open_running_stack("second").target is Target.TWIN_CLOUD


def test_a_job_on_a_stack_without_a_platform_is_refused_with_the_stack_that_has_it() -> None:
    with pytest.raises(EverstepError, match="declares only a job") as error:
        open_stack("third")

    assert "eks-dev" in str(error.value.fix)


@pytest.mark.parametrize("platform", ["second", "third"])
def test_job_stacks_that_name_themselves_or_each_other_are_refused(
    project: Path, platform: str
) -> None:
    stack_file = project / "stacks" / "Pulumi.second.yaml"
    stack_file.write_text(stack_file.read_text().replace("name: eks-dev", f"name: {platform}"))

    with pytest.raises(EverstepError, match=f"is {platform}, which declares only a job") as error:
        open_stack("second")

    assert error.value.fix == "Specify a stack that declares a platform."


def test_a_job_needs_a_platform_that_is_up() -> None:
    context = open_stack("second", twin=True)
    with pytest.raises(EverstepError, match="eks-dev, which is not up") as error:
        require_platform(context)
    assert "everstep up --stack eks-dev --detach --twin" in str(error.value.fix)

    write_state(open_stack("eks-dev", twin=True))
    require_platform(context)


def test_a_platform_is_not_destroyed_while_a_job_of_another_stack_is_on_it() -> None:
    platform = open_stack("eks-dev", twin=True)
    write_state(platform)
    write_state(open_stack("second", twin=True), "organization/everstep/eks-dev")

    with pytest.raises(EverstepError, match=r"nothing was destroyed.*second") as error:
        refuse_while_shared(platform, local_deployments(platform))
    assert "everstep down --stack second --twin" in str(error.value.fix)


def test_a_platform_without_jobs_of_other_stacks_may_be_destroyed() -> None:
    platform = open_stack("eks-dev", twin=True)
    write_state(platform)
    write_state(open_stack("second", twin=True), "organization/everstep/another")

    refuse_while_shared(platform, local_deployments(platform))


@pytest.mark.parametrize("readable", [True, False], ids=["its file", "an invalid file"])
def test_down_of_a_job_keeps_the_platform_of_the_other_stack(
    readable: bool, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, platform = open_stack("second", twin=True), open_stack("eks-dev", twin=True)
    write_state(platform)
    write_state(job, "organization/everstep/eks-dev")
    destroyed_stacks: list[str] = []

    def destroy(context: StackContext, _: object) -> None:
        destroyed_stacks.append(context.workspace.stack)

    monkeypatch.setattr(lifecycle, "_take_down_job", destroy)
    context = job if readable else StackContext(job.workspace, job.config, Target.TWIN)
    lifecycle.take_down(context, Silent())

    assert destroyed_stacks == ["second"]
    assert state_file(platform.workspace).exists(), "its machines and state belong to the platform"


def test_down_of_a_job_that_was_never_up_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    platform = open_stack("eks-dev", twin=True)
    write_state(platform)
    monkeypatch.setattr(Engine, "destroy", lambda *_: pytest.fail("there is nothing to destroy"))

    lifecycle.take_down(open_stack("second", twin=True), Silent())

    assert state_file(platform.workspace).exists()
