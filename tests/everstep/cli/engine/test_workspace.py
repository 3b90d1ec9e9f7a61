"""Stack files, mistyped names, the engine's copy of a stack file, and its passphrase."""

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from everstep.cli.engine import workspace as workspaces
from everstep.cli.engine.stack_file import copy_stack_file, read_config
from everstep.cli.engine.workspace import (
    Workspace,
    find_project,
)
from everstep.errors import EverstepError
from everstep.files import write_atomically

VALID_STACK = "config:\n  everstep:job:\n    name: fashion # kept\n"


@pytest.fixture
def local_stack(tmp_path: Path) -> Workspace:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: everstep\n")
    workspace = Workspace(tmp_path, "local", "test", tmp_path / "state")
    workspace.stack_file.write_text(VALID_STACK)
    return workspace


def test_a_stack_file_that_is_not_yaml_is_reported_with_line_and_column(
    local_stack: Workspace,
) -> None:
    local_stack.stack_file.write_text("config:\n  everstep:job: {name: fashion\n")

    with pytest.raises(EverstepError, match=r"Pulumi.local.yaml is not YAML: line 3, column 1"):
        read_config(local_stack)


def test_a_date_that_does_not_exist_is_an_error_of_the_stack_file(local_stack: Workspace) -> None:
    local_stack.stack_file.write_text("config:\n  everstep:job: {deadline: 2026-13-01}\n")

    with pytest.raises(EverstepError, match=r"Pulumi.local.yaml .*: month must be in 1..12"):
        read_config(local_stack)


def test_a_stack_file_that_is_nested_too_deeply_is_a_user_error(local_stack: Workspace) -> None:
    local_stack.stack_file.write_text(f"config: {'[' * 3000}{']' * 3000}")

    with pytest.raises(EverstepError, match=r"Pulumi.local.yaml is nested too deeply"):
        read_config(local_stack)


def test_a_stack_file_that_links_to_nothing_is_not_called_an_unknown_stack(
    local_stack: Workspace,
) -> None:
    local_stack.stack_file.unlink()
    local_stack.stack_file.symlink_to("gone.yaml")

    with pytest.raises(EverstepError, match=r"Pulumi.local.yaml is not a file") as error:
        read_config(local_stack)
    assert "a link to a file that does not exist" in error.value.fix


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("config:\n  everstep:job:\n    epochs: 1\n    epochs: 2\n", "epochs", 3),
        ("config:\n  everstep:job: {}\n  everstep:job: {}\n", "everstep:job", 2),
        ("config: {}\nconfig: {}\n", "config", 1),
        ("config:\n  everstep:tags: {owner: a, owner: b}\n", "owner", 2),
    ],
)
def test_a_duplicate_key_is_refused(local_stack: Workspace, text: str, key: str, line: int) -> None:
    local_stack.stack_file.write_text(text)

    with pytest.raises(EverstepError, match=f"'{key}' already occurs in line {line}"):
        read_config(local_stack)


def test_the_error_for_a_stack_file_without_a_mapping_describes_the_format(
    local_stack: Workspace,
) -> None:
    local_stack.stack_file.write_text("- a\n- b\n")

    with pytest.raises(EverstepError, match="is not a stack configuration") as error:
        read_config(local_stack)
    assert "config:" in error.value.fix


def test_all_faults_of_a_configuration_are_reported_before_anything_starts(
    local_stack: Workspace,
) -> None:
    local_stack.stack_file.write_text(
        "config:\n  everstep:job: {model: resnet81, minReplicas: 4}\n  everstep:stroage: {}\n"
    )

    with pytest.raises(EverstepError, match="4 faults") as error:
        read_config(local_stack)
    for part in ("resnet81", "resnet18", "minReplicas", "stroage", "storage"):
        assert part in error.value.fix


def test_an_unknown_stack_is_reported_with_the_nearest_names(
    monkeypatch: pytest.MonkeyPatch, local_stack: Workspace
) -> None:
    monkeypatch.chdir(local_stack.project)
    (local_stack.project / "stacks" / "Pulumi.aks-dev.yaml").write_text(VALID_STACK)

    with pytest.raises(EverstepError, match="no stack named 'lcoal'") as error:
        read_config(workspaces.open_workspace("lcoal"))
    assert error.value.fix == "Did you mean local? Known names: aks-dev, local."


@pytest.mark.parametrize("name", ["ö ü", "a[b]", "a" * 101])
def test_a_name_that_pulumi_does_not_allow_is_refused_before_machines_are_started(
    local_stack: Workspace, name: str
) -> None:
    stack = replace(local_stack, stack=name)
    stack.stack_file.write_text(VALID_STACK)

    with pytest.raises(EverstepError, match="Pulumi does not allow the name"):
        read_config(stack)


def test_a_command_in_a_folder_that_was_deleted_is_a_user_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    with pytest.raises(EverstepError, match="the current folder was deleted"):
        workspaces.open_workspace()


def test_the_project_is_found_from_a_subfolder(local_stack: Workspace) -> None:
    subfolder = local_stack.project / "a" / "b"
    subfolder.mkdir(parents=True)

    assert find_project(subfolder) == local_stack.project


def test_the_engines_copy_gets_the_salt_of_the_state_and_the_users_file_is_not_changed(
    local_stack: Workspace,
) -> None:
    copy = copy_stack_file(local_stack, "v1:salt")

    assert copy.read_text() == f"{VALID_STACK}encryptionsalt: v1:salt\n"
    assert local_stack.stack_file.read_text() == VALID_STACK
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_a_salt_of_the_user_takes_precedence(local_stack: Workspace) -> None:
    local_stack.stack_file.write_text(f"{VALID_STACK}encryptionsalt: v1:mine\n")

    assert "v1:mine" in copy_stack_file(local_stack, "v1:other").read_text()
    assert "v1:other" not in copy_stack_file(local_stack, "v1:other").read_text()


CLOUD_KEY = "secretsprovider: awskms://key\nencryptedkey: AQICAHg=\n"


def test_a_state_with_a_salt_does_not_use_the_key_in_a_cloud(local_stack: Workspace) -> None:
    local_stack.stack_file.write_text(f"{CLOUD_KEY}{VALID_STACK}")

    copy = copy_stack_file(local_stack, "v1:salt")

    assert copy.read_text() == f"{VALID_STACK}encryptionsalt: v1:salt\n", "a twin has no login"


def test_a_state_without_a_salt_uses_the_key_of_the_stack_file(local_stack: Workspace) -> None:
    local_stack.stack_file.write_text(f"{VALID_STACK}{CLOUD_KEY}")

    assert copy_stack_file(local_stack, None).read_text() == f"{VALID_STACK}{CLOUD_KEY}"


def test_the_passphrase_is_created_once_and_readable_only_by_its_owner(
    local_stack: Workspace,
) -> None:
    path = workspaces.passphrase_file(local_stack)
    passphrase = path.read_text()

    assert workspaces.passphrase_file(local_stack).read_text() == passphrase
    assert len(passphrase) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_commands_that_create_the_passphrase_concurrently_use_the_same_one(
    local_stack: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = local_stack.engine / "passphrase"

    def write_later(own_file: Path, content: str) -> None:
        write_atomically(own_file, content)
        path.write_text("of the other command")

    monkeypatch.setattr(workspaces, "write_atomically", write_later)

    assert workspaces.passphrase_file(local_stack).read_text() == "of the other command"
    assert [file.name for file in path.parent.glob("passphrase*")] == ["passphrase"]


def test_to_destroy_a_stack_with_an_invalid_file_the_engine_gets_an_empty_one(
    local_stack: Workspace,
) -> None:
    local_stack.stack_file.write_text("config:\n  everstep:job: {name: fashion\n")

    assert copy_stack_file(local_stack, "v1:salt", allow_invalid=True).read_text() == (
        "config: {}\nencryptionsalt: v1:salt\n"
    )
    with pytest.raises(EverstepError, match="is not YAML"):
        copy_stack_file(local_stack, "v1:salt")


def test_to_destroy_a_stack_without_a_file_the_engine_gets_an_empty_one(
    local_stack: Workspace,
) -> None:
    local_stack.stack_file.unlink()

    assert copy_stack_file(local_stack, None, allow_invalid=True).read_text() == "config: {}"
