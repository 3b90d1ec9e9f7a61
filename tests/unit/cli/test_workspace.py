"""Stack files, mistyped names, and the engine's copy of the configuration."""

import stat

import pytest

from everstep.cli import workspace as workspaces
from everstep.cli.workspace import Workspace, copy_stack_file, find_project, read_configuration
from everstep.errors import EverstepError

GOOD = "config:\n  everstep:job:\n    name: fashion # kept\n"


@pytest.fixture
def here(tmp_path):
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: everstep\n")
    workspace = Workspace(tmp_path, "local", "test", tmp_path / "state")
    workspace.stack_file.write_text(GOOD)
    return workspace


def test_a_stack_file_that_is_not_yaml_is_named_with_line_and_column(here):
    here.stack_file.write_text("config:\n  everstep:job: {name: fashion\n")

    with pytest.raises(EverstepError, match=r"Pulumi.local.yaml is not YAML: line 3, column 1"):
        read_configuration(here)


def test_a_stack_file_that_holds_no_mapping_says_what_it_must_hold(here):
    here.stack_file.write_text("- a\n- b\n")

    with pytest.raises(EverstepError, match="no stack configuration") as caught:
        read_configuration(here)
    assert "config:" in caught.value.remedy


def test_all_faults_of_a_configuration_are_named_before_anything_is_started(here):
    here.stack_file.write_text(
        "config:\n  everstep:job: {model: resnet81, minReplicas: 4}\n  everstep:stroage: {}\n"
    )

    with pytest.raises(EverstepError, match="4 faults") as caught:
        read_configuration(here)
    for word in ("resnet81", "resnet18", "minReplicas", "stroage", "storage"):
        assert word in caught.value.remedy


def test_an_unknown_stack_is_answered_with_the_nearest_names(monkeypatch, here):
    monkeypatch.chdir(here.project)
    (here.project / "stacks" / "Pulumi.aks-dev.yaml").write_text(GOOD)

    with pytest.raises(EverstepError, match="no stack named 'lcoal'") as caught:
        read_configuration(workspaces.open_workspace("lcoal"))
    assert caught.value.remedy == "Did you mean local? There are: aks-dev, local."


def test_the_project_is_found_from_a_folder_below_it(here):
    below = here.project / "a" / "b"
    below.mkdir(parents=True)

    assert find_project(below) == here.project


def test_the_engines_copy_gets_the_states_salt_and_the_users_file_is_left_alone(here):
    copy = copy_stack_file(here, "v1:salt")

    assert copy.read_text() == f"{GOOD}encryptionsalt: v1:salt\n"
    assert here.stack_file.read_text() == GOOD
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_salt_of_the_users_own_wins(here):
    here.stack_file.write_text(f"{GOOD}encryptionsalt: v1:mine\n")

    assert "v1:mine" in copy_stack_file(here, "v1:other").read_text()
    assert "v1:other" not in copy_stack_file(here, "v1:other").read_text()


def test_the_passphrase_is_made_once_and_only_its_owner_can_read_it(here):
    path = workspaces.passphrase_file(here)
    first = path.read_text()

    assert workspaces.passphrase_file(here).read_text() == first
    assert len(first) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_to_destroy_a_stack_whose_file_is_faulty_the_engine_gets_an_empty_one(here):
    here.stack_file.write_text("config:\n  everstep:job: {name: fashion\n")

    assert copy_stack_file(here, "v1:salt", mended=True).read_text() == (
        "config: {}\nencryptionsalt: v1:salt\n"
    )
    with pytest.raises(EverstepError, match="is not YAML"):
        copy_stack_file(here, "v1:salt")


def test_to_destroy_a_stack_whose_file_is_gone_the_engine_gets_an_empty_one(here):
    here.stack_file.unlink()

    assert copy_stack_file(here, None, mended=True).read_text() == "config: {}"
