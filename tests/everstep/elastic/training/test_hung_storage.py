"""Storage that never responds: the writing thread really waits in system calls on pipes without a reader."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.elastic.checkpoint import files
from everstep.elastic.recovery.worker import SingleProcessGroup
from everstep.errors import EverstepError
from tests.everstep.elastic.training.test_run_in_groups import ScriptedGroup, compute, start_run

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the folder of a run whose checkpoints cannot be written: `open` waits."""
    staging = tmp_path / "staging"
    staging.mkdir()
    pipe = staging / files.STATE_FILE
    os.mkfifo(pipe)
    monkeypatch.setattr(files, "new_staging_folder", lambda *_: staging)
    yield tmp_path / "run"
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # the writing threads continue, and fail
    for thread in threading.enumerate():
        if thread.name == "everstep-checkpoint":
            thread.join(100)
    os.close(reader)


def test_another_worker_writes_the_checkpoints_when_the_storage_of_the_first_one_hangs(
    run_folder: Path,
) -> None:
    run, model, _ = start_run(
        ScriptedGroup(lambda _: False),
        checkpoint=run_folder,
        checkpoint_steps=1,
        storage_timeout_seconds=1,
        epochs=1_000_000,
    )
    session = run._session

    for batch in run:
        compute(batch, model)
        if session.worker.saver == 1:
            break

    assert session.attached, "the worker with the hung storage continues to train"
    assert not session.worker.saves
    assert not session.state.checkpoints.is_due(run.step), "it still waits for its own write"


def test_a_run_whose_last_checkpoint_cannot_be_written_ends_with_the_reason(
    run_folder: Path,
) -> None:
    run, model, _ = start_run(
        SingleProcessGroup(), checkpoint=run_folder, max_steps=1, storage_timeout_seconds=1
    )

    def train() -> None:
        for batch in run:
            compute(batch, model)

    with pytest.raises(
        EverstepError,
        match="cannot be written by any worker: its storage has not responded for at least 1 s",
    ) as error:
        train()
    assert "continues from the last committed checkpoint" in error.value.fix
