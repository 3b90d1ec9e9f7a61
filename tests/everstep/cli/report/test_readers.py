"""Readers of a run's files, which parse each line once."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from everstep.cli.kubernetes_client import KubernetesClient, PodCommandError
from everstep.cli.report.fold import RunFold
from everstep.cli.report.readers import (
    FolderReader,
    PodReader,
    copy_result,
    split_listing,
)
from everstep.cli.report.run_record import MachineEvent
from everstep.elastic.accounting.journal import Journal
from everstep.errors import EverstepError
from tests.journals import JournalReader


def step_line(step: int, time: float) -> str:
    return (
        json.dumps({"at": time, "kind": "step", "step": step, "seconds": 0.5, "images": 8}) + "\n"
    )


def test_a_folder_is_read_from_the_end_of_the_last_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "journal").mkdir()
    journal = tmp_path / "journal" / "w0.jsonl"
    journal.write_text(step_line(1, 1.0) + step_line(2, 2.0)[:-9])
    reader = FolderReader(tmp_path, tmp_path / "events.jsonl")
    assert [step.step for step in reader.read().steps] == [1], "the second line is incomplete"
    parsed_texts: list[str] = []
    add = RunFold.add

    def record_and_add(
        fold: RunFold, worker: str, text: str, events: Iterable[MachineEvent], until: float
    ) -> float:
        parsed_texts.append(text)
        return add(fold, worker, text, events, until)

    monkeypatch.setattr(RunFold, "add", record_and_add)
    journal.write_text(step_line(1, 1.0) + step_line(2, 2.0) + step_line(3, 3.0))

    assert [step.step for step in reader.read().steps] == [1, 2, 3]
    assert [step.step for step in reader.read().steps] == [1, 2, 3]
    assert "\n".join(filter(None, parsed_texts)) == (step_line(2, 2.0) + step_line(3, 3.0)).rstrip(
        "\n"
    ), "a reader that parses old lines again gets slower with each step"


def test_a_torn_line_in_the_middle_of_a_journal_costs_only_that_line(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "job"
    journal_file = run / "journal" / "w0.jsonl"
    journal_file.parent.mkdir(parents=True)
    events = tmp_path / "events.jsonl"
    torn_line = step_line(3, 3.0)[:-9]  # the worker was killed while it wrote
    journal_file.write_text(step_line(1, 1.0) + step_line(2, 2.0) + torn_line)
    follower = FolderReader(run, events)
    assert [step.step for step in follower.read().steps] == [1, 2]

    successor = Journal(journal_file)
    successor.note("step", step=3, seconds=0.5, images=8)
    successor.note("step", step=4, seconds=0.5, images=8)
    successor.close()

    assert [step.step for step in follower.read().steps] == [1, 2, 3, 4]
    new_reader = FolderReader(run, events)
    assert [step.step for step in new_reader.read().steps] == [1, 2, 3, 4]
    pod_reader = FakeClient(tmp_path).reader()
    assert [step.step for step in pod_reader.read().steps] == [1, 2, 3, 4]
    journal_reader = JournalReader(journal_file.parent)
    assert [entry["step"] for entry in journal_reader.read()] == [1, 2, 3, 4]
    assert torn_line + "\n" in journal_file.read_text(), "the torn line is still there"


def test_a_run_that_replaced_another_is_read_from_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    journal = tmp_path / "journal" / "w0.jsonl"
    journal.write_text(step_line(1, 1.0) + step_line(2, 2.0))
    reader = FolderReader(tmp_path, tmp_path / "events.jsonl")
    reader.read()

    journal.unlink()
    (tmp_path / "journal" / "w1.jsonl").write_text(step_line(1, 9.0))

    assert [(step.step, step.at) for step in reader.read().steps] == [(1, 9.0)]


class FakeClient:
    """A client of a cluster whose only pod has the run's folder; shell scripts run on this machine.

    Attributes:
        root: folder that is mounted as the volume.
        bytes_sent: total size of all outputs.
        pod: name of the running worker; None without one.
        runs_commands: False if the pod ends before each command.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.bytes_sent = root, 0
        self.pod: str | None = "w0"
        self.runs_commands = True

    def reader(self) -> PodReader:
        client = cast("KubernetesClient", self)
        return PodReader(client, "job", self.root / "events.jsonl")

    def running_worker(self, job: str) -> str | None:
        del job
        return self.pod

    def shell(self, pod: str, script: str) -> str:
        if not self.runs_commands:
            raise PodCommandError(f"the command could not run in the pod {pod}: not found")
        script = script.replace("/everstep/", f"{self.root}/")
        result = subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True)
        self.bytes_sent += len(result.stdout)
        return result.stdout


def test_a_pod_sends_only_the_new_content_of_its_files(tmp_path: Path) -> None:
    journals = tmp_path / "runs" / "job" / "journal"
    journals.mkdir(parents=True)
    (journals / "w0.jsonl").write_text(
        "".join(step_line(step, step) for step in range(1, 101)) + '{"at"'
    )
    (journals / "w1.jsonl").write_text("")
    cluster = FakeClient(tmp_path)
    reader = cluster.reader()
    assert len(reader.read().steps) == 100
    initial_bytes = cluster.bytes_sent

    with (journals / "w0.jsonl").open("a") as file:
        file.write(': 101.0, "kind": "step", "step": 101}\n')
    assert len(reader.read().steps) == 101, "a torn line is read once it is complete"

    assert cluster.bytes_sent - initial_bytes < 200
    cluster.pod = None
    assert len(reader.read().steps) == 101, "without a worker the last reading is shown"


def test_a_journal_that_became_shorter_belongs_to_another_run(tmp_path: Path) -> None:
    journal = tmp_path / "runs" / "job" / "journal" / "w0.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text(step_line(1, 1.0) + step_line(2, 2.0))
    reader = FakeClient(tmp_path).reader()
    reader.read()

    journal.write_text(step_line(1, 9.0))

    assert [(step.step, step.at) for step in reader.read().steps] == [(1, 9.0)]


def test_the_result_of_a_run_that_replaced_another_is_not_read_as_a_journal(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "job"
    (run / "journal").mkdir(parents=True)
    (run / "journal" / "w0.jsonl").write_text(step_line(1, 1.0))
    reader = FakeClient(tmp_path).reader()
    reader.read()

    (run / "journal" / "w0.jsonl").rename(run / "journal" / "w1.jsonl")
    (run / "result.json").write_text('{"accuracy": 0.5}\n')

    assert [reader.read().result for _ in range(2)] == [{"accuracy": 0.5}] * 2


def test_a_worker_that_ends_before_the_command_counts_as_no_worker(tmp_path: Path) -> None:
    journals = tmp_path / "runs" / "job" / "journal"
    journals.mkdir(parents=True)
    (journals / "w0.jsonl").write_text(step_line(1, 1.0))
    cluster = FakeClient(tmp_path)
    reader = cluster.reader()
    reader.read()

    cluster.runs_commands = False

    assert [step.step for step in reader.read().steps] == [1]


def test_a_journal_with_a_quote_in_its_name_is_read(tmp_path: Path) -> None:
    journal = tmp_path / "runs" / "job" / "journal" / "a'b.jsonl"
    journal.parent.mkdir(parents=True)
    journal.write_text(step_line(1, 1.0))
    reader = FakeClient(tmp_path).reader()
    reader.read()

    journal.write_text(step_line(1, 1.0) + step_line(2, 2.0))

    assert [step.step for step in reader.read().steps] == [1, 2]


def test_a_listing_is_split_into_files_without_the_newline_before_a_separator() -> None:
    assert split_listing("\n\036w0.jsonl\n{}\n\n\036w1.jsonl\n{") == {
        "w0.jsonl": "{}\n",
        "w1.jsonl": "{",
    }


def test_a_run_that_does_not_exist_is_not_copied(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="there is no run to keep"):
        copy_result(tmp_path / "run", tmp_path / "copy")


def test_an_existing_folder_is_not_replaced_by_a_copy(tmp_path: Path) -> None:
    for name in ("run", "copy"):
        (tmp_path / name).mkdir()

    with pytest.raises(EverstepError, match="copy already exists"):
        copy_result(tmp_path / "run", tmp_path / "copy")


def test_a_copy_that_fails_leaves_no_partial_copy(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "dangling").symlink_to(tmp_path / "gone")

    with pytest.raises(EverstepError, match="cannot be copied to"):
        copy_result(tmp_path / "run", tmp_path / "copy")

    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_is_copied_although_a_worker_removes_a_checkpoint_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, copytree = tmp_path / "run", shutil.copytree
    checkpoint = run / "checkpoints" / "step-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "state").touch()
    (run / "result.json").touch()

    def copy_then_remove_checkpoint(source: Path, destination: Path, *options: Any) -> None:
        copytree(source, destination, *options)
        if source == run and checkpoint.exists():
            shutil.rmtree(checkpoint)
            raise shutil.Error([(str(checkpoint / "state"), "", "No such file or directory")])

    monkeypatch.setattr(shutil, "copytree", copy_then_remove_checkpoint)

    copy_result(run, tmp_path / "kept")

    assert sorted(path.name for path in (tmp_path / "kept").rglob("*")) == [
        "checkpoints",
        "result.json",
    ]


def test_a_copy_that_fails_for_another_reason_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = tmp_path / "run", []
    run.mkdir()

    def fail(source: Path, destination: Path) -> None:
        calls.append(source)
        raise shutil.Error([(str(run), "", "No space left on device")])

    monkeypatch.setattr(shutil, "copytree", fail)

    with pytest.raises(EverstepError, match="No space left on device"):
        copy_result(run, tmp_path / "kept")
    assert calls == [run]
