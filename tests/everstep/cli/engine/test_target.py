"""Targets of stacks, the location of their state, and stacks whose file is invalid."""

import json
from pathlib import Path

import pytest

from everstep.cli.engine import target as targets
from everstep.cli.engine.context import open_running_stack, open_stack, open_stack_to_destroy
from everstep.cli.engine.driver import PASSPHRASE_VARIABLES, state_file
from everstep.cli.engine.stack_file import copy_stack_file
from everstep.cli.engine.target import Target
from everstep.cli.engine.workspace import Workspace, open_workspace
from everstep.errors import EverstepError
from tests.everstep.cli.projects import enter_project

LOCAL = "config:\n  everstep:job: {name: fashion}\n"
OWN_CLUSTER = "config:\n  everstep:cluster: {kind: existing, kubeconfig: /home/me/config}\n"
EKS = """config:
  everstep:tags: {owner: me, costCenter: "1", environment: dev}
  everstep:cluster: {kind: eks, publicAccess: [192.0.2.0/24]}
  everstep:controller: {kind: upstream, image: "torchelastic/kubernetes:0.1.0"}
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a stack of each kind and separate state roots."""
    folder = tmp_path / "project"
    enter_project(folder, monkeypatch, {"local": LOCAL, "mine": OWN_CLUSTER, "eks-dev": EKS})
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "twins"))
    monkeypatch.delenv("EVERSTEP_TWIN", raising=False)
    return folder


def write_state(workspace: Workspace, *types: str) -> None:
    """Write a state with resources of these types."""
    path = state_file(workspace)
    path.parent.mkdir(parents=True)
    resources = [{"type": kind} for kind in types]
    path.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))


def workspace_on(target: Target, stack: str) -> Workspace:
    return targets.workspace_on(target, open_workspace(stack))


@pytest.mark.parametrize(
    ("stack", "twin", "target"),
    [
        ("local", False, Target.TWIN),
        ("local", True, Target.TWIN),
        ("mine", False, Target.OWN_CLUSTER),
        ("eks-dev", False, Target.CLOUD),
        ("eks-dev", True, Target.TWIN_CLOUD),
    ],
)
def test_stack_file_and_twin_option_decide_the_target(
    stack: str, twin: bool, target: Target
) -> None:
    assert open_stack(stack, twin=twin).target is target


def test_a_stack_on_the_users_cluster_cannot_run_on_the_twin() -> None:
    with pytest.raises(EverstepError, match="/home/me/config"):
        open_stack("mine", twin=True)


@pytest.mark.parametrize("target", [Target.OWN_CLUSTER, Target.CLOUD])
def test_state_outside_the_twin_is_not_in_the_folder_of_twins(target: Target) -> None:
    workspace = workspace_on(target, "mine")

    for path in (workspace.engine, workspace.events, workspace.machines):
        assert not path.is_relative_to(workspace.state), "taking a twin down removes its folder"
    assert not workspace.engine.is_relative_to(workspace.state.parent), (
        "a state in that folder would be taken for a leftover of a twin"
    )


def test_each_stack_on_a_cloud_of_the_twin_has_a_separate_twin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert open_stack("eks-dev", twin=True).workspace.twin == "eks-dev"
    assert open_stack("local").workspace.twin == "default"
    monkeypatch.setenv("EVERSTEP_TWIN", "mine")

    assert open_stack("eks-dev", twin=True).workspace.twin == "mine", "unless the user chooses one"


def test_inspection_commands_find_a_stack_on_the_twin() -> None:
    assert open_running_stack("eks-dev").target is Target.CLOUD
    write_state(workspace_on(Target.TWIN_CLOUD, "eks-dev"))

    assert open_running_stack("eks-dev").target is Target.TWIN_CLOUD
    assert open_stack("eks-dev").target is Target.CLOUD, "commands that change a stack need --twin"


def test_the_twin_uses_the_maintained_controller_and_a_real_cloud_the_upstream_one() -> None:
    twin, cloud = open_stack("eks-dev", twin=True), open_stack("eks-dev")

    assert twin.config.controller.kind == "maintained"
    assert "kind: maintained" in copy_stack_file(twin.workspace, None).read_text()
    assert cloud.config.controller.kind == "upstream"
    assert copy_stack_file(cloud.workspace, None).read_text() == EKS


@pytest.mark.parametrize("damage", ["not YAML", "gone", "misspelled"])
@pytest.mark.parametrize(
    ("stack", "target", "types"),
    [
        ("local", Target.TWIN, ["kubernetes:core/v1:Pod"]),
        ("mine", Target.OWN_CLUSTER, ["kubernetes:core/v1:Pod"]),
        ("eks-dev", Target.TWIN_CLOUD, ["pulumi:providers:aws"]),
        ("eks-dev", Target.CLOUD, ["pulumi:providers:aws"]),
    ],
)
def test_a_stack_to_destroy_is_found_by_its_state_if_its_file_is_unusable(
    project: Path, stack: str, target: Target, types: list[str], damage: str
) -> None:
    write_state(workspace_on(target, stack), *types)
    file = project / "stacks" / f"Pulumi.{stack}.yaml"
    faults = {"not YAML": "config: {", "misspelled": "config: {'everstep:jbo': {}}"}
    file.write_text(faults[damage]) if damage in faults else file.unlink()

    context = open_stack_to_destroy(stack)

    assert context.target is target
    assert context.workspace == workspace_on(target, stack)
    problem = f"no stack named {stack!r}" if damage == "gone" else str(file)
    assert problem in str(context.config_error)


def test_a_twin_without_a_stack_file_is_found_by_its_state(project: Path) -> None:
    workspace_on(Target.TWIN, "local").state.mkdir(parents=True)
    (project / "stacks" / "Pulumi.local.yaml").unlink()

    assert open_stack_to_destroy("local").target is Target.TWIN


def test_without_state_an_invalid_stack_file_is_an_error(project: Path) -> None:
    (project / "stacks" / "Pulumi.local.yaml").write_text("config: {")

    with pytest.raises(EverstepError, match="is not YAML"):
        open_stack_to_destroy("local")
    with pytest.raises(EverstepError, match="no stack named 'locla'"):
        open_stack_to_destroy("locla")


def test_with_the_twin_option_a_real_cloud_is_never_destroyed(project: Path) -> None:
    write_state(workspace_on(Target.CLOUD, "eks-dev"), "pulumi:providers:aws")
    (project / "stacks" / "Pulumi.eks-dev.yaml").unlink()

    with pytest.raises(EverstepError, match="no stack named"):
        open_stack_to_destroy("eks-dev", twin=True)


def test_inspecting_a_real_cloud_names_the_command_that_gets_a_kubeconfig(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)

    with pytest.raises(EverstepError, match=r"\$KUBECONFIG is not set") as error:
        open_stack("eks-dev").connect()
    assert "aws eks update-kubeconfig --name everstep --region us-east-1" in error.value.fix
    assert "--twin" in error.value.fix


@pytest.fixture
def no_passphrase(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use a separate cache, and unset the variables of a user's passphrase."""
    monkeypatch.setenv("CLOUDTWIN_CACHE", str(tmp_path / "cache"))
    for name in PASSPHRASE_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_passphrase")
def test_a_preview_of_a_new_stack_leaves_nothing_in_the_folder_of_twins(tmp_path: Path) -> None:
    workspace = targets.preview_workspace(workspace_on(Target.TWIN_CLOUD, "eks-dev"))

    assert workspace.engine.is_relative_to(tmp_path / "cache")
    assert workspace == targets.preview_workspace(workspace_on(Target.TWIN_CLOUD, "eks-dev")), (
        "the next preview uses the same state"
    )
    assert (
        workspace.engine
        != targets.preview_workspace(workspace_on(Target.TWIN_CLOUD, "mine")).engine
    )


@pytest.mark.usefixtures("no_passphrase")
def test_a_preview_of_an_existing_stack_reads_its_state() -> None:
    workspace = workspace_on(Target.TWIN_CLOUD, "eks-dev")
    write_state(workspace, "pulumi:providers:aws")

    assert targets.preview_workspace(workspace) == workspace


@pytest.mark.usefixtures("no_passphrase")
def test_state_with_a_users_passphrase_is_not_kept_in_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PASSPHRASE_VARIABLES[0], "mine")
    workspace = workspace_on(Target.TWIN_CLOUD, "eks-dev")

    assert targets.preview_workspace(workspace) == workspace, (
        "the next preview may have another passphrase"
    )
