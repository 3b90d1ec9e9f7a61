"""`everstep status` and `everstep report` on a cluster whose volume is elsewhere."""

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from everstep.cli.app import build_app
from everstep.cli.engine.context import StackContext
from everstep.errors import EverstepError
from tests.everstep.cli.projects import enter_project, shipped_stack
from tests.everstep.cli.recorded_run import RecordedRun
from tests.everstep.cli.report.volume_cluster import VolumeCluster, elastic_job

STACK = "eks-dev"
CONDITIONS = ("Succeeded", "Suspended", "Created")
"""Conditions of a job without workers: it has ended, is suspended, or waits for machines."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> VolumeCluster:
    """Return the cluster of a stack, with an empty volume."""
    enter_project(tmp_path / "project", monkeypatch, {STACK: yaml.safe_dump(shipped_stack(STACK))})
    monkeypatch.setenv("CLOUDTWIN_STATE", str(tmp_path / "twins"))
    cluster = VolumeCluster(tmp_path / "volume")
    monkeypatch.setattr(StackContext, "connect", lambda _context: cluster.client)
    return cluster


def run(command: str, *options: str) -> Result:
    arguments = [command, "--stack", STACK, *options]
    result = CliRunner().invoke(build_app(), arguments, env={"COLUMNS": "120"})
    if result.exception:
        raise result.exception
    return result


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("condition", CONDITIONS)
def test_without_a_worker_the_status_says_that_the_files_cannot_be_read(
    cluster: VolumeCluster, condition: str
) -> None:
    cluster.job = elastic_job(condition)

    shown = words(run("status").stdout)

    assert "no step yet" not in shown
    assert "no worker runs, so the files of the run cannot be read" in shown
    assert f"{condition} message" in shown
    assert not cluster.created_pods, "a status changes nothing in the cluster"


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_json_of_a_status_without_a_worker_claims_only_what_the_job_shows(
    cluster: VolumeCluster, condition: str
) -> None:
    cluster.job = elastic_job(condition)

    training = json.loads(run("status", "--json").stdout)["training"]

    assert training["finished"] == (condition == "Succeeded")
    assert training["step"] is training["accuracy"] is None


def test_with_a_worker_the_status_shows_the_progress(
    cluster: VolumeCluster, drill_run: RecordedRun
) -> None:
    cluster.has_worker = True
    cluster.write(drill_run)

    assert json.loads(run("status", "--json").stdout)["training"]["step"] == 300
    assert "0.8912" in run("status").stdout


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_report_of_a_job_without_workers_is_complete(
    cluster: VolumeCluster, drill_run: RecordedRun, condition: str
) -> None:
    cluster.job = elastic_job(condition)
    cluster.write(drill_run)

    value = json.loads(run("report", "--json").stdout)

    assert (value["steps"], value["accuracy"]) == (300, 0.8912)
    assert cluster.created_pods
    assert not cluster.pods


def test_the_report_of_a_job_that_waits_for_its_first_machine_says_that_it_has_not_begun(
    cluster: VolumeCluster,
) -> None:
    cluster.job = elastic_job("Created")
    cluster.root.mkdir()

    with pytest.raises(EverstepError, match="has not begun"):
        run("report")


def test_a_report_that_cannot_be_read_has_the_condition_of_the_job(cluster: VolumeCluster) -> None:
    cluster.refusal = "exceeded quota"

    with pytest.raises(
        EverstepError, match=r"no worker runs .the job is Succeeded.*exceeded quota"
    ):
        run("report")
