"""The run that `everstep down --keep-run` keeps, if the volume has several or another one."""

import json
from pathlib import Path

import pytest

from everstep.cli.engine.context import StackContext, open_stack, open_stack_to_destroy
from everstep.cli.engine.driver import state_file
from everstep.cli.engine.runs import run_folders, run_to_keep
from everstep.errors import EverstepError
from tests.everstep.cli.projects import enter_project


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackContext:
    """Return a stack on the twin whose file names the job `mine`."""
    enter_project(
        tmp_path / "project", monkeypatch, {"local": "config: {everstep:job: {name: mine}}"}
    )
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "twins"))
    monkeypatch.delenv("EVERSTEP_TWIN", raising=False)
    return open_stack("local")


def write_runs(context: StackContext, *jobs: str) -> None:
    for job in jobs:
        (context.run_folder.parent / job / "checkpoints" / "step-1").mkdir(parents=True)


def deploy(context: StackContext, *jobs: str, replaced: str = "") -> None:
    """Write a state with these jobs, and with a replaced job that Pulumi has yet to delete."""
    kind = "kubernetes:elastic.pytorch.org/v1alpha1:ElasticJob"
    resources = [
        {"type": kind, "delete": name == replaced, "inputs": {"metadata": {"name": name}}}
        for name in (*([replaced] if replaced else []), *jobs)
    ]
    path = state_file(context.workspace)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))


def break_stack_file(context: StackContext) -> StackContext:
    """Make the stack file invalid and return the stack to destroy."""
    context.workspace.stack_file.write_text("config: {everstep:job: {nmae: mine}}")
    return open_stack_to_destroy("local")


def test_the_run_of_the_stack_file_is_kept_before_anything_is_deployed(
    context: StackContext,
) -> None:
    write_runs(context, "mine", "other")

    assert run_to_keep(context).name == "mine"


def test_the_run_of_the_deployed_job_is_kept_although_the_stack_file_names_another(
    context: StackContext,
) -> None:
    write_runs(context, "mine", "deployed", "older")
    deploy(context, "deployed", replaced="older")

    assert run_to_keep(context).name == "deployed"


def test_a_run_of_another_job_is_named_instead_of_removed(context: StackContext) -> None:
    write_runs(context, "before", "earlier")

    with pytest.raises(EverstepError, match="no run of the job mine to keep") as error:
        run_to_keep(context)

    runs = context.run_folder.parent
    assert f"Nothing was changed. {runs} has the runs: before, earlier." in error.value.fix


def test_the_deployed_job_is_found_with_an_invalid_stack_file(context: StackContext) -> None:
    write_runs(context, "mine", "fashion", "other")
    deploy(context, "mine")

    assert run_to_keep(break_stack_file(context)).name == "mine"


def test_the_only_run_is_kept_if_neither_file_nor_state_names_a_job(context: StackContext) -> None:
    write_runs(context, "mine")
    deploy(context)

    assert run_to_keep(break_stack_file(context)).name == "mine"


def test_one_of_several_runs_is_not_guessed(context: StackContext) -> None:
    write_runs(context, "fashion", "mine")
    deploy(context)

    with pytest.raises(EverstepError, match="the run to keep is unknown") as error:
        run_to_keep(break_stack_file(context))

    assert "the runs: fashion, mine" in error.value.fix


def test_a_volume_without_runs_is_named(context: StackContext) -> None:
    with pytest.raises(EverstepError, match="no run of the job mine") as error:
        run_to_keep(context)

    assert error.value.fix.endswith("has no runs.\nRun the command without --keep-run.")


def test_files_beside_the_runs_are_no_runs(context: StackContext) -> None:
    write_runs(context, "mine")
    (context.run_folder.parent / "notes.txt").write_text("mine")

    assert [folder.name for folder in run_folders(context)] == ["mine"]
