"""What a stack stands on, where its state lies, and what is found of a stack whose file is faulty."""

import json

import pytest

from everstep.cli import grounds
from everstep.cli.access import place, place_to_leave, place_to_look
from everstep.cli.engine import PASSPHRASE, state_file
from everstep.cli.grounds import Ground
from everstep.cli.workspace import copy_stack_file, open_workspace
from everstep.errors import EverstepError

LOCAL = "config:\n  everstep:job: {name: fashion}\n"
OWN = "config:\n  everstep:cluster: {kind: existing, kubeconfig: /home/me/config}\n"
EKS = """config:
  everstep:tags: {owner: me, costCenter: "1", environment: dev}
  everstep:cluster: {kind: eks, publicAccess: [192.0.2.0/24]}
  everstep:controller: {kind: upstream, image: "torchelastic/kubernetes:0.1.0"}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a stack of each kind, and state roots of its own."""
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: everstep\n")
    for name, text in (("local", LOCAL), ("mine", OWN), ("eks-dev", EKS)):
        (folder / "stacks" / f"Pulumi.{name}.yaml").write_text(text)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("EVERSTEP_STATE", str(tmp_path / "twins"))
    monkeypatch.delenv("EVERSTEP_TWIN", raising=False)
    return folder


def declare(workspace, *types: str) -> None:
    """Write a state with resources of these types."""
    path = state_file(workspace)
    path.parent.mkdir(parents=True)
    resources = [{"type": kind} for kind in types]
    path.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))


def on(ground: Ground, stack: str):
    return grounds.on(ground, open_workspace(stack))


@pytest.mark.parametrize(
    ("stack", "twin", "ground"),
    [
        ("local", False, Ground.TWIN),
        ("local", True, Ground.TWIN),
        ("mine", False, Ground.OWN_CLUSTER),
        ("eks-dev", False, Ground.CLOUD),
        ("eks-dev", True, Ground.TWIN_CLOUD),
    ],
)
def test_the_stack_file_and_one_option_say_what_a_stack_stands_on(project, stack, twin, ground):
    assert place(stack, twin=twin).ground is ground


def test_a_stack_on_a_cluster_of_ones_own_cannot_be_tried_on_the_twin(project):
    with pytest.raises(EverstepError, match="/home/me/config"):
        place("mine", twin=True)


@pytest.mark.parametrize("ground", [Ground.OWN_CLUSTER, Ground.CLOUD])
def test_what_a_stack_made_elsewhere_is_not_remembered_in_a_twins_folder(project, ground):
    there = on(ground, "mine")

    assert not there.engine.is_relative_to(there.state), "taking a twin down removes its folder"
    assert not there.engine.is_relative_to(there.state.parent), "there it would be a leftover"


def test_each_stack_on_a_cloud_of_the_twin_has_a_twin_of_its_own(project, monkeypatch):
    assert place("eks-dev", twin=True).workspace.twin == "eks-dev"
    assert place("local").workspace.twin == "default"
    monkeypatch.setenv("EVERSTEP_TWIN", "mine")

    assert place("eks-dev", twin=True).workspace.twin == "mine", "unless the user chooses one"


def test_a_stack_that_stands_on_the_twins_cloud_is_found_there_when_it_is_looked_at(project):
    assert place_to_look("eks-dev").ground is Ground.CLOUD
    declare(on(Ground.TWIN_CLOUD, "eks-dev"))

    assert place_to_look("eks-dev").ground is Ground.TWIN_CLOUD
    assert place("eks-dev").ground is Ground.CLOUD, "what changes things must be told"


def test_on_the_twins_cloud_the_engine_is_told_of_our_controller_and_in_the_cloud_of_the_other(
    project,
):
    twin, cloud = place("eks-dev", twin=True), place("eks-dev")

    assert twin.config.controller.kind == "maintained"
    assert "kind: maintained" in copy_stack_file(twin.workspace, None).read_text()
    assert cloud.config.controller.kind == "upstream"
    assert copy_stack_file(cloud.workspace, None).read_text() == EKS


@pytest.mark.parametrize("damage", ["not YAML", "gone", "misspelt"])
@pytest.mark.parametrize(
    ("stack", "ground", "types"),
    [
        ("local", Ground.TWIN, ["kubernetes:core/v1:Pod"]),
        ("mine", Ground.OWN_CLUSTER, ["kubernetes:core/v1:Pod"]),
        ("eks-dev", Ground.TWIN_CLOUD, ["pulumi:providers:aws"]),
        ("eks-dev", Ground.CLOUD, ["pulumi:providers:aws"]),
    ],
)
def test_a_stack_is_found_by_its_state_where_its_file_is_no_help(
    project, stack, ground, types, damage
):
    declare(on(ground, stack), *types)
    file = project / "stacks" / f"Pulumi.{stack}.yaml"
    faults = {"not YAML": "config: {", "misspelt": "config: {'everstep:jbo': {}}"}
    file.write_text(faults[damage]) if damage in faults else file.unlink()

    here = place_to_leave(stack)

    assert here.ground is ground
    assert here.workspace == on(ground, stack)
    assert str(file) in str(here.fault) or f"no stack named {stack!r}" in str(here.fault)


def test_a_twin_that_was_killed_before_it_had_a_stack_is_found_too(project):
    on(Ground.TWIN, "local").state.mkdir(parents=True)
    (project / "stacks" / "Pulumi.local.yaml").unlink()

    assert place_to_leave("local").ground is Ground.TWIN


def test_where_nothing_is_remembered_a_faulty_stack_file_is_the_error(project):
    (project / "stacks" / "Pulumi.local.yaml").write_text("config: {")

    with pytest.raises(EverstepError, match="is not YAML"):
        place_to_leave("local")
    with pytest.raises(EverstepError, match="no stack named 'locla'"):
        place_to_leave("locla")


def test_with_the_twin_asked_for_a_real_cloud_is_never_what_is_left(project):
    declare(on(Ground.CLOUD, "eks-dev"), "pulumi:providers:aws")
    (project / "stacks" / "Pulumi.eks-dev.yaml").unlink()

    with pytest.raises(EverstepError, match="no stack named"):
        place_to_leave("eks-dev", twin=True)


def test_to_look_at_a_real_cloud_a_kubeconfig_is_needed_and_the_command_for_it_is_said(
    project, monkeypatch
):
    monkeypatch.delenv("KUBECONFIG", raising=False)

    with pytest.raises(EverstepError, match=r"\$KUBECONFIG names no cluster") as caught:
        place("eks-dev").connect()
    assert "aws eks update-kubeconfig --name everstep --region us-east-1" in caught.value.remedy
    assert "--twin" in caught.value.remedy


@pytest.fixture
def own_passphrase(monkeypatch, tmp_path):
    """A cache of the test's own, and no passphrase of the user's; gives what sets one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in PASSPHRASE:
        monkeypatch.delenv(name, raising=False)
    return lambda: monkeypatch.setenv(PASSPHRASE[0], "mine")


def test_a_preview_of_a_stack_that_is_not_there_leaves_nothing_among_the_twins(
    project, own_passphrase, tmp_path
):
    found = grounds.only_previewed(on(Ground.TWIN_CLOUD, "eks-dev"))

    assert found.engine.is_relative_to(tmp_path / "cache")
    assert found == grounds.only_previewed(on(Ground.TWIN_CLOUD, "eks-dev")), "the next one's too"
    assert found.engine != grounds.only_previewed(on(Ground.TWIN_CLOUD, "mine")).engine


def test_a_preview_of_a_stack_that_stands_reads_its_state(project, own_passphrase):
    stands = on(Ground.TWIN_CLOUD, "eks-dev")
    declare(stands, "pulumi:providers:aws")

    assert grounds.only_previewed(stands) == stands


def test_a_passphrase_of_the_users_own_seals_no_state_in_the_cache(project, own_passphrase):
    own_passphrase()
    here = on(Ground.TWIN_CLOUD, "eks-dev")

    assert grounds.only_previewed(here) == here, "the next preview may come with another one"
