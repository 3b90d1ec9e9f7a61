"""Folders of stacks: files of the user in them, and two projects with a stack of the same name."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep.cli.commands import market, node
from everstep.cli.commands import up as up_command
from everstep.cli.commands.down import down
from everstep.cli.commands.drain import drain
from everstep.cli.engine.context import StackContext, open_stack
from everstep.cli.engine.driver import state_file
from everstep.cli.engine.stack_folder import ADOPT_VARIABLE, locked_stack, require_own_project
from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError
from everstep.progress import Silent
from tests.everstep.cli.projects import enter_project

TWIN = "config: {}\n"
OWN_CLUSTER = "config:\n  everstep:cluster: {kind: existing, kubeconfig: /a/kubeconfig}\n"

COMMANDS = (
    lambda: up_command.up(stack="local", detach=True, yes=True),
    lambda: down(stack="local", yes=True),
)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("CLOUDTWIN_NAME", raising=False)
    monkeypatch.delenv("EVERSTEP_TWIN", raising=False)
    monkeypatch.delenv(ADOPT_VARIABLE, raising=False)
    monkeypatch.setattr(up_command, "check_machine", lambda _context: None)


def use_lock(workspace: Workspace) -> None:
    with locked_stack(workspace, "up", "", record_project=True):
        pass


@pytest.fixture(params=[TWIN, OWN_CLUSTER])
def first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> StackContext:
    """Return the stack of a project that is up; a second project is the current folder."""
    enter_project(tmp_path / "first", monkeypatch, {"local": request.param})
    context = open_stack("local")
    use_lock(context.workspace)
    path = state_file(context.workspace)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"checkpoint": {"latest": {"resources": [{"type": "first's"}]}}}))
    enter_project(tmp_path / "second", monkeypatch, {"local": request.param})
    return context


def contents(folder: Path) -> dict[Path, str]:
    return {path: path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "command",
    [
        *COMMANDS,
        lambda: drain("gpu-0", stack="local"),
        lambda: node.add("gpu-9", stack="local"),
        lambda: market.close(stack="local"),
        lambda: market.open_(stack="local", seed="a"),
        lambda: open_stack("local").engine(Silent()),
    ],
    ids=["up", "down", "drain", "add", "close", "open", "pulumi"],
)
def test_the_stack_of_another_project_is_refused_and_not_changed(
    first: StackContext, tmp_path: Path, command: Callable[[], object]
) -> None:
    before = contents(tmp_path)

    with pytest.raises(EverstepError) as error:
        command()

    assert str(tmp_path / "first") in error.value.problem
    assert str(tmp_path / "second") in error.value.problem
    for advice in ("EVERSTEP_STATE", ADOPT_VARIABLE, f"in {tmp_path / 'first'}"):
        assert advice in error.value.fix
    assert contents(tmp_path) == before


def test_a_project_that_was_moved_keeps_its_stack(
    first: StackContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "first").rename(tmp_path / "moved")
    workspace = open_stack("local").workspace

    use_lock(workspace)

    assert "no longer exists" in capsys.readouterr().err
    require_own_project(workspace)
    assert not capsys.readouterr().err, "the next command has nothing to report"


@pytest.mark.usefixtures("first")
def test_a_copy_of_a_project_continues_its_stack_only_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workspace = open_stack("local").workspace
    with pytest.raises(EverstepError):
        require_own_project(workspace)

    monkeypatch.setenv(ADOPT_VARIABLE, "1")
    use_lock(workspace)
    monkeypatch.delenv(ADOPT_VARIABLE)

    require_own_project(workspace)


def test_a_link_to_a_project_is_the_same_project(
    first: StackContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "first")
    monkeypatch.chdir(tmp_path / "link")

    require_own_project(open_stack("local").workspace)
    assert open_stack("local").workspace.home == first.workspace.home


@pytest.mark.usefixtures("first")
def test_another_state_root_has_another_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "second-state"))

    require_own_project(open_stack("local").workspace)


@pytest.mark.parametrize("content", [TWIN, OWN_CLUSTER])
@pytest.mark.parametrize("command", COMMANDS, ids=["up", "down"])
def test_a_folder_of_the_user_is_refused_and_not_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, command: Callable[[], None]
) -> None:
    enter_project(tmp_path / "project", monkeypatch, {"local": content})
    home = open_stack("local").workspace.home
    home.mkdir(parents=True)
    (home / "photograph.jpg").touch()

    with pytest.raises(EverstepError, match="has files that are not Everstep's") as error:
        command()

    assert "EVERSTEP_STATE" in error.value.fix
    assert [path.name for path in home.iterdir()] == ["photograph.jpg"]


@pytest.mark.parametrize("content", [TWIN, OWN_CLUSTER])
def test_down_of_a_stack_that_is_not_up_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    enter_project(tmp_path / "project", monkeypatch, {"local": content})

    down(stack="local", yes=True)

    assert not open_stack("local").workspace.home.exists()
