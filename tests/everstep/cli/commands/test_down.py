"""The confirmation prompt of `everstep down`, and what it reports as left."""

import json
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import typer
import yaml
from rich.console import Console

from components.config import from_mapping
from everstep.cli.commands import down
from everstep.cli.engine.context import StackContext, open_stack
from everstep.cli.engine.driver import state_file
from everstep.cli.engine.stack_file import default_config
from everstep.cli.engine.target import Target
from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError
from tests.components.config.bad_stacks import AKS, EKS
from tests.everstep.cli.projects import enter_project, shipped_stack

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def cloud_stack(tmp_path: Path) -> StackContext:
    workspace = Workspace(tmp_path, "eks-dev", "test", tmp_path / "state")
    return StackContext(workspace, default_config(workspace), Target.CLOUD)


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the questions that a user at a terminal answered with no."""
    questions: list[str] = []

    def refuse(question: str, **_: object) -> None:
        questions.append(question)
        raise typer.Abort

    monkeypatch.setattr(typer, "confirm", refuse)
    monkeypatch.setattr(sys, "stdin", Mock(isatty=lambda: True))
    return questions


def test_a_stack_in_a_real_cloud_is_destroyed_only_after_a_question(
    cloud_stack: StackContext, refusals: list[str]
) -> None:
    with pytest.raises(typer.Abort):
        down._keep_or_confirm(cloud_stack, None, yes=False)
    assert refusals == ["This destroys stack eks-dev on a real cloud. Continue?"]


def test_yes_skips_the_question(cloud_stack: StackContext, refusals: list[str]) -> None:
    down._keep_or_confirm(cloud_stack, None, yes=True)

    assert refusals == []


def test_without_a_terminal_a_stack_outside_the_twin_is_destroyed_only_with_yes(
    cloud_stack: StackContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down, "open_stack_to_destroy", lambda *_, **__: cloud_stack)
    destroyed: list[str] = []
    monkeypatch.setattr(
        down, "take_down", lambda context, _: destroyed.append(context.workspace.stack)
    )
    monkeypatch.setattr(sys, "stdin", Mock(isatty=lambda: False))

    with pytest.raises(EverstepError, match="not a terminal; nothing was changed") as error:
        down.down(stack="eks-dev")

    assert destroyed == []
    assert error.value.fix == (
        "This destroys stack eks-dev on a real cloud. To confirm it: pass --yes."
    )
    down.down(stack="eks-dev", yes=True)
    assert destroyed == ["eks-dev"]


def cloud_context(folder: Path, target: Target, config: dict[str, Any]) -> StackContext:
    workspace = Workspace(folder, "mine", "test", folder / "state")
    return StackContext(workspace, from_mapping(config), target)


@pytest.mark.parametrize(("base", "page"), [(AKS, "docs/aks.md"), (EKS, "docs/eks.md")])
def test_what_a_real_cloud_keeps_of_a_destroyed_stack_is_not_denied(
    base: dict[str, Any], page: str, tmp_path: Path
) -> None:
    result = down._result(cloud_context(tmp_path, Target.CLOUD, base))

    assert result == f"the stack is destroyed; {page}, 'Teardown', lists what the cloud can keep"
    assert "\n## Teardown\n" in (ROOT / page).read_text(encoding="utf-8")


def test_nothing_is_left_of_a_twin(tmp_path: Path) -> None:
    assert down._result(cloud_context(tmp_path, Target.TWIN_CLOUD, AKS)) == "nothing is left"


@pytest.fixture
def twin_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackContext:
    """Return a stack on the twin whose file names the job `mine`."""
    stack_file = "config: {everstep:job: {name: mine}}"
    enter_project(tmp_path / "project", monkeypatch, {"local": stack_file})
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "twins"))
    monkeypatch.delenv("EVERSTEP_TWIN", raising=False)
    return open_stack("local")


def write_run(context: StackContext, job: str, *, finished: bool = True) -> Path:
    run = context.run_folder.parent / job
    (run / "checkpoints" / "step-1").mkdir(parents=True)
    if finished:
        (run / "result.json").write_text("{}")
    return run


def test_a_run_that_cannot_be_kept_stops_the_command(
    twin_stack: StackContext, tmp_path: Path
) -> None:
    write_run(twin_stack, "earlier")

    with pytest.raises(EverstepError, match="no run of the job mine to keep") as error:
        down._keep_or_confirm(twin_stack, tmp_path / "kept", yes=True)

    assert "earlier" in error.value.fix
    assert not (tmp_path / "kept").exists()


def test_the_kept_run_is_copied_and_other_runs_are_listed(
    twin_stack: StackContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(twin_stack, "mine", finished=False)
    write_run(twin_stack, "earlier")

    down._keep_or_confirm(twin_stack, tmp_path / "kept", yes=False)

    messages = capsys.readouterr().err
    assert (tmp_path / "kept" / "checkpoints" / "step-1").is_dir()
    assert "kept run mine, 1 checkpoint" in messages
    assert "removed with the volume: run earlier, 1 checkpoint" in messages


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(down, "messages", Console(stderr=True, force_terminal=True))


@pytest.mark.usefixtures("terminal")
def test_the_run_of_an_unfinished_job_is_removed_only_after_a_question(
    twin_stack: StackContext, refusals: list[str], tmp_path: Path
) -> None:
    """Whatever name the job has in the stack file."""
    write_run(twin_stack, "mine", finished=False)
    write_run(twin_stack, "earlier", finished=False)

    with pytest.raises(typer.Abort):
        down._keep_or_confirm(twin_stack, tmp_path / "kept", yes=False)

    assert refusals == ["The job earlier has not finished. Remove its run?"]
    assert not (tmp_path / "kept").exists(), "a second attempt would be refused"


@pytest.fixture
def job_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackContext:
    """Return a stack on the twin's cloud whose job runs on the platform of the stack eks-dev."""
    job = "config:\n  everstep:platformStack: {name: eks-dev}\n  everstep:job: {name: second}\n"
    stacks = {"eks-dev": yaml.safe_dump(shipped_stack("eks-dev")), "second": job}
    enter_project(tmp_path / "project", monkeypatch, stacks)
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "twins"))
    monkeypatch.delenv("EVERSTEP_TWIN", raising=False)
    return open_stack("second", twin=True)


@pytest.mark.usefixtures("terminal")
def test_the_run_of_a_job_on_another_stacks_platform_stays(
    job_stack: StackContext, refusals: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(job_stack, "second", finished=False)
    write_run(job_stack, "training", finished=False)

    down._keep_or_confirm(job_stack, None, yes=False)

    assert refusals == [], "nothing is removed"
    assert "removed" not in capsys.readouterr().err


def test_the_run_of_a_job_on_another_stacks_platform_can_be_copied(
    job_stack: StackContext, tmp_path: Path
) -> None:
    write_run(job_stack, "second")

    down._keep_or_confirm(job_stack, tmp_path / "kept", yes=True)

    assert (tmp_path / "kept" / "checkpoints" / "step-1").is_dir()


@pytest.mark.parametrize("readable", [True, False], ids=["its file", "an invalid file"])
def test_down_of_a_job_names_the_stack_whose_volume_has_the_run(
    readable: bool,
    twin_stack: StackContext,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stack_file = twin_stack.workspace.stack_file.with_name("Pulumi.second.yaml")
    stack_file.write_text("config: {everstep:platformStack: {name: local}}")
    run = write_run(twin_stack, "training", finished=False)
    write_state_of_job(open_stack("second"), "organization/everstep/local")
    if not readable:
        stack_file.write_text("config: {everstep:platformStack: {nmae: local}}")

    def take_down(context: StackContext, _: object) -> None:
        state_file(context.workspace).unlink()

    monkeypatch.setattr(down, "take_down", take_down)
    down.down(stack="second")

    messages = capsys.readouterr().err
    assert "the job is removed; its run stays on the volume of the stack local;" in messages
    assert "removed with the volume" not in messages
    assert run.exists()


def write_state_of_job(context: StackContext, platform: str) -> None:
    """Write the state of a stack that reads the outputs of its platform."""
    path = state_file(context.workspace)
    path.parent.mkdir(parents=True)
    resources = [{"type": "pulumi:pulumi:StackReference", "id": platform}]
    path.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))
