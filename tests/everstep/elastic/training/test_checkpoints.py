"""Files that a worker writes during training."""

import errno
import json
import resource
from pathlib import Path

import pytest

from everstep.catalog import metrics
from everstep.elastic.checkpoint.disk import Disk
from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.recovery.worker import SingleProcessGroup
from everstep.elastic.training.run_storage import LEDGER_FILE, FolderStorage
from everstep.errors import EverstepError
from tests.everstep.elastic.descriptors import no_descriptors_left
from tests.everstep.elastic.training.test_run_in_groups import compute, start_run

FREE_DESCRIPTORS = 64
COMMITS = 2 * FREE_DESCRIPTORS  # a leak of one descriptor per commit would exhaust them


def test_commits_do_not_use_up_the_file_descriptors(tmp_path: Path) -> None:
    storage = FolderStorage(tmp_path)
    manifest = Manifest(1, 1, {}, {"samples": 4, "digest": "00"})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_descriptors = sum(1 for _ in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_descriptors + FREE_DESCRIPTORS, hard))
    try:
        for _ in range(COMMITS):
            storage.note_commit(manifest)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert len((tmp_path / LEDGER_FILE).read_text().splitlines()) == COMMITS


def test_without_free_descriptors_training_continues_and_saves_fail(tmp_path: Path) -> None:
    run, model, _ = start_run(
        SingleProcessGroup(), checkpoint=tmp_path, checkpoint_steps=1, epochs=8
    )
    session, batches = run._session, iter(run)
    compute(next(batches), model)
    session.worker.journal.flush()  # its file is open now

    with no_descriptors_left():
        for _ in range(3):
            batch = next(batches)
            session.state.flush()
            compute(batch, model)
    assert run.step == 4
    compute(next(batches), model)
    session.state.flush()
    next(batches)
    session.state.flush()
    session.worker.journal.flush()

    [journal] = tmp_path.glob("journal/*.jsonl")
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    failures = [entry for entry in entries if entry["kind"] == "checkpoint_failed"]
    assert [entry["step"] for entry in failures] == [1, 2, 3], "one for each attempt"
    assert all("Too many open files" in entry["reason"] for entry in failures)
    committed_steps = [entry["step"] for entry in entries if entry["kind"] == "checkpoint"]
    assert committed_steps == [4, 5], "saves succeed again as soon as there are descriptors"


def test_changed_data_are_recorded_with_the_generation_that_restores_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = SingleProcessGroup()
    monkeypatch.setattr(group, "generation", 3)
    FolderStorage(tmp_path).open(samples=1, fingerprint={})
    run, model, _ = start_run(group, checkpoint=tmp_path)

    batches = iter(run)
    compute(next(batches), model)

    [change] = json.loads((tmp_path / "run.json").read_text())["data_changes"]
    assert (change["step"], change["generation"]) == (0, 3)
    assert change["samples"] > 1


def test_a_run_whose_last_checkpoint_fails_ends_as_failed_and_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(_: Disk, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Disk, "create", create)
    group, commits = SingleProcessGroup(), list[int]()
    monkeypatch.setattr(group, "commit", lambda _, step, run="": commits.append(step))
    run, model, _ = start_run(group, checkpoint=tmp_path, max_steps=1)

    def train() -> None:
        for batch in run:
            compute(batch, model)

    with pytest.raises(
        EverstepError, match=r"of step 1, cannot be written by any worker: .*No space left"
    ) as error:
        train()
    assert "Check the storage" in error.value.fix
    assert commits == [], "a restarted run would look for a checkpoint that does not exist"


def test_the_size_of_a_checkpoint_is_exported_although_its_line_in_the_ledger_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note_commit(*_: object) -> None:
        raise OSError(errno.EIO, "the connection is broken")

    monkeypatch.setattr(FolderStorage, "note_commit", note_commit)
    run, model, _ = start_run(SingleProcessGroup(), checkpoint=tmp_path, max_steps=1)
    for batch in run:
        compute(batch, model)

    values = run._session.state.checkpoints.metric_values(saves=True)

    assert values[metrics.CHECKPOINT_BYTES]
