"""`everstep report` on a folder: the page, the event file, and what it refuses."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from components.config import from_mapping
from everstep.cli.app import build_app
from everstep.cli.commands import report as report_command
from everstep.cli.engine.context import StackContext
from everstep.cli.engine.target import Target
from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError
from tests.components.config.bad_stacks import EKS
from tests.everstep.cli.recorded_run import RecordedRun
from tests.everstep.cli.report.volume_cluster import JOB, VolumeCluster, elastic_job


def report(*arguments: str) -> Result:
    result = CliRunner().invoke(build_app(), ["report", *arguments], env={"COLUMNS": "120"})
    if isinstance(result.exception, EverstepError):
        raise result.exception
    return result


def write_run(recorded_run: RecordedRun, folder: Path) -> Path:
    journal = folder / "journal"
    journal.mkdir(parents=True)
    for worker, lines in recorded_run.journals.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (journal / f"{worker}.jsonl").write_text(text + '{"at": 17900')  # a torn last line
    events = "".join(json.dumps(line) + "\n" for line in recorded_run.events)
    (folder / "events.jsonl").write_text(events)
    return folder


@pytest.fixture
def folder(tmp_path: Path, drill_run: RecordedRun) -> Path:
    return write_run(drill_run, tmp_path / "run")


def test_a_run_folder_gives_a_page_with_the_events_of_its_machines(
    folder: Path, tmp_path: Path
) -> None:
    page = tmp_path / "new" / "report.html"

    result = report("--run", str(folder), "--html", str(page))

    assert result.exit_code == 0, result.output
    text = page.read_text()
    assert "Training survived both losses of workers" in text
    assert "The machine disappeared without notice." in text
    assert page.stat().st_mode & 0o444 == 0o444


def test_the_page_and_the_json_are_written_together(folder: Path, tmp_path: Path) -> None:
    result = report("--run", str(folder), "--json", "--html", str(tmp_path / "report.html"))

    value = json.loads(result.stdout)
    assert value["steps"] == 300
    assert value["money"] is None, "the stack of a folder is unknown"


def test_an_event_file_has_every_step_of_a_long_run(
    recorded_run: RecordedRun, tmp_path: Path
) -> None:
    recorded_run.total_steps = 5000
    folder = write_run(recorded_run.form("gpu-0").train(5000), tmp_path / "run")

    result = report("--run", str(folder), "--tensorboard", str(tmp_path / "curves"))

    assert result.exit_code == 0, result.output
    (path,) = (tmp_path / "curves").iterdir()
    assert path.read_bytes().count(b"training/loss") == 5000, "no steps are merged"
    report("--run", str(folder), "--tensorboard", str(tmp_path / "curves"))
    assert list((tmp_path / "curves").iterdir()) == [path], "the same run replaces its file"


def test_a_folder_without_a_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match=r"is not the folder of a run.*journal does not exist"):
        report("--run", str(tmp_path))


def test_a_run_that_has_not_begun_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()

    with pytest.raises(EverstepError, match="has not begun"):
        report("--run", str(tmp_path), "--html", str(tmp_path / "report.html"))

    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize("option", ["--tensorboard", "--mlflow", "--wandb"])
def test_curves_of_a_run_without_a_worker_start_are_refused(tmp_path: Path, option: str) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "result.json").write_text('{"job": "fashion", "accuracy": 0.9}')

    with pytest.raises(EverstepError, match="records no worker start, so there are no curves"):
        report("--run", str(tmp_path), option, str(tmp_path / "curves"))


@pytest.mark.parametrize("option", ["--mlflow", "--wandb"])
def test_a_client_that_is_not_installed_is_named(
    folder: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(EverstepError, match=f"{option} needs the package"):
        report("--run", str(folder), option, "http://127.0.0.1")


def test_waiting_for_a_folder_is_refused(folder: Path) -> None:
    with pytest.raises(
        EverstepError, match="--wait cannot be used with --run, which names a folder"
    ):
        report("--run", str(folder), "--wait")


@pytest.mark.parametrize("option", ["--html", "--tensorboard"])
def test_a_path_that_cannot_be_written_is_named(folder: Path, option: str) -> None:
    unwritable_path = folder / "events.jsonl" / "below-a-file"

    with pytest.raises(EverstepError, match=f"{option} {unwritable_path}.* cannot be written"):
        report("--run", str(folder), option, str(unwritable_path))


def test_a_page_that_cannot_be_written_is_named_before_the_training_is_awaited(
    folder: Path,
) -> None:
    unwritable_path = folder / "events.jsonl" / "page.html"

    with pytest.raises(EverstepError, match=f"--html {unwritable_path} cannot be written"):
        report("--wait", "--html", str(unwritable_path), "--stack", "nowhere")


def test_bars_that_standard_output_cannot_encode_are_replaced(folder: Path) -> None:
    result = subprocess.run(
        [Path(sys.executable).parent / "everstep", "report", "--run", folder],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )

    assert result.returncode == 0, result.stderr
    assert b"????" in result.stdout


def report_on(cluster: VolumeCluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """Report on a stack whose job runs on a cluster, and return the result, even if the command failed."""
    workspace = Workspace(cluster.root, "eks-dev", "test", cluster.root / "state")
    context = StackContext(
        workspace, from_mapping({**EKS, "job": {"name": JOB}}), Target.OWN_CLUSTER
    )
    monkeypatch.setattr(StackContext, "connect", lambda _: cluster.client)
    monkeypatch.setattr(report_command, "open_running_stack", lambda *_, **__: context)
    return CliRunner().invoke(build_app(), ["report", *arguments], env={"COLUMNS": "120"})


def test_the_report_of_a_failed_job_is_complete_and_its_exit_code_is_1(
    tmp_path: Path, drill_run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = VolumeCluster(tmp_path, elastic_job("Failed"))
    cluster.write(drill_run)

    result = report_on(cluster, monkeypatch, "--wait", "--json")

    assert json.loads(result.stdout)["steps"] == 300
    assert isinstance(result.exception, EverstepError), result.output
    assert result.exception.problem == f"the job {JOB} failed: R"
    assert result.exit_code == 1


def test_the_report_of_a_job_that_succeeded_waits_for_the_result(
    tmp_path: Path, drill_run: RecordedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = VolumeCluster(tmp_path)
    cluster.write(drill_run)
    result_file = tmp_path / "runs" / JOB / "result.json"
    result_file.unlink()
    monkeypatch.setattr(
        "everstep.cli.report.final_record.time.sleep",
        lambda _: result_file.write_text('{"accuracy": 0.75}'),
    )

    result = report_on(cluster, monkeypatch, "--wait", "--json")

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["accuracy"] == 0.75


@pytest.mark.parametrize("refusal", ["", "exceeded quota"])
def test_a_failed_job_without_a_readable_report_is_named_as_failed(
    tmp_path: Path, refusal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = VolumeCluster(tmp_path, elastic_job("Failed"), refusal=refusal)

    result = report_on(cluster, monkeypatch, "--wait", "--html", str(tmp_path / "report.html"))

    assert isinstance(result.exception, EverstepError), result.output
    assert result.exception.problem == f"the job {JOB} failed: R"
    assert (refusal or "has not begun") in " ".join(result.stderr.split())
