"""The record of a run without workers, read on a cluster whose volume is elsewhere."""

import json
from pathlib import Path

import pytest

from everstep.cli.report.final_record import final_record
from everstep.cli.report.reader_pod import RunUnreadableError
from everstep.cli.report.readers import FolderReader
from tests.everstep.cli.report.volume_cluster import JOB, VolumeCluster, elastic_job


def write_steps(root: Path, *steps: int) -> None:
    journal = root / "runs" / JOB / "journal" / "w0.jsonl"
    journal.parent.mkdir(parents=True, exist_ok=True)
    with journal.open("a") as file:
        for step in steps:
            line = {"at": float(step), "kind": "step", "step": step, "seconds": 0.5, "images": 8}
            file.write(json.dumps(line) + "\n")


@pytest.mark.parametrize("condition", ["Succeeded", "Suspended", "Created"])
def test_a_run_without_workers_is_read_from_a_pod_that_is_deleted_afterwards(
    tmp_path: Path, condition: str
) -> None:
    write_steps(tmp_path, 1, 2)
    cluster = VolumeCluster(tmp_path, elastic_job(condition))

    record = final_record(cluster.reader())

    assert [step.step for step in record.steps] == [1, 2]
    assert cluster.created_pods
    assert not cluster.pods


def test_a_running_worker_is_read_without_a_pod(tmp_path: Path) -> None:
    write_steps(tmp_path, 1)
    cluster = VolumeCluster(tmp_path, has_worker=True)

    assert len(final_record(cluster.reader()).steps) == 1
    assert not cluster.created_pods


def test_the_end_of_a_followed_run_is_added_to_what_was_read_before(tmp_path: Path) -> None:
    write_steps(tmp_path, 1)
    cluster = VolumeCluster(tmp_path, has_worker=True)
    reader = cluster.reader()
    reader.read()

    write_steps(tmp_path, 2)
    (tmp_path / "runs" / JOB / "result.json").write_text('{"accuracy": 0.5}')
    record = final_record(reader, ended=True)

    assert [step.step for step in record.steps] == [1, 2]
    assert record.result == {"accuracy": 0.5}
    assert len(cluster.created_pods) == 1, "a worker may end while it is read"


def test_if_no_pod_starts_the_record_of_a_followed_run_is_shown_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_steps(tmp_path, 1)
    cluster = VolumeCluster(tmp_path, has_worker=True, refusal="exceeded quota")
    reader = cluster.reader()
    reader.read()
    cluster.has_worker = False

    assert [step.step for step in final_record(reader, ended=True).steps] == [1]
    message = " ".join(capsys.readouterr().err.split())
    assert "the last steps may be missing: no worker runs" in message
    assert "exceeded quota" in message


def test_if_nothing_can_be_read_there_is_no_empty_record(tmp_path: Path) -> None:
    cluster = VolumeCluster(tmp_path, refusal="exceeded quota")

    with pytest.raises(RunUnreadableError, match="the files of the run cannot be read"):
        final_record(cluster.reader())


def test_a_pod_that_ends_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    cluster = VolumeCluster(tmp_path)
    reader = cluster.reader()

    with reader.readable():
        cluster.pods.clear()
        with pytest.raises(RunUnreadableError, match="it has ended"):
            reader.read()

    assert not reader.has_read


def test_the_result_of_a_folder_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_result(_seconds: float) -> None:
        (tmp_path / "result.json").write_text('{"accuracy": 0.5}')

    monkeypatch.setattr("everstep.cli.report.final_record.time.sleep", write_result)
    reader = FolderReader(tmp_path, tmp_path / "no-events")

    assert final_record(reader, awaits_result=True).result == {"accuracy": 0.5}
