"""The end of `everstep follow` and `everstep up`, on a cluster whose volume is elsewhere."""

from pathlib import Path

import pytest

from everstep.cli.commands.follow import _show_end
from everstep.cli.kubernetes_client import Condition
from everstep.cli.report.follow import JobMonitor, JobOutcome
from everstep.cli.report.money import Billing
from everstep.errors import EverstepError
from tests.everstep.cli.recorded_run import RecordedRun
from tests.everstep.cli.report.volume_cluster import JOB, VolumeCluster


def show_end(cluster: VolumeCluster, outcome: JobOutcome = JobOutcome.SUCCEEDED) -> None:
    conditions = (Condition(outcome, "AReason", "a message"),)
    monitor = JobMonitor(cluster.client, JOB, conditions=conditions)
    _show_end(cluster.reader(), monitor, Billing(billed=False, reason="a test"))


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_report_of_an_ended_training_is_read_although_its_workers_are_gone(
    tmp_path: Path, drill_run: RecordedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = VolumeCluster(tmp_path)
    cluster.write(drill_run)

    show_end(cluster)

    shown = capsys.readouterr().out
    assert "finished" in shown
    assert "0.8912" in shown, "the accuracy"
    assert not cluster.pods


def test_files_that_cannot_be_read_are_no_training_that_has_not_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show_end(VolumeCluster(tmp_path, refusal="exceeded quota"))

    output = capsys.readouterr()
    assert "no training yet" not in output.out
    message = words(output.err)
    assert "no worker runs (the job is Succeeded: Succeeded message)" in message
    assert "exceeded quota" in message


def test_a_failed_job_is_an_error_even_if_its_files_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="the job fashion failed: AReason"):
        show_end(VolumeCluster(tmp_path, refusal="exceeded quota"), JobOutcome.FAILED)
