"""Storage that never responds, or slowly, while a checkpoint is written.

Where it never responds, the writing thread really waits in system calls on pipes without a reader.
"""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from torch._C._distributed_c10d import Store, TCPStore

from everstep.elastic.checkpoint import files
from everstep.elastic.checkpoint.disk import Disk
from everstep.elastic.checkpoint.state_format import Tensors
from everstep.elastic.recovery.worker import SingleProcessGroup, TrainingState
from everstep.elastic.training import training_state
from everstep.elastic.training.options import RunHooks
from everstep.elastic.transport.group import RankAssignment
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


STORE_SECONDS = 1.0  # timeout of the group's store: no request may take longer


class PairedGroup(SingleProcessGroup):
    """A group of two workers in one process, which share nothing but the store.

    Args:
        rank: rank of this worker.
        store: store of the group.
    """

    def __init__(self, rank: int, store: Store) -> None:
        self._rank, self._store = rank, store
        self.summaries = list[str]()
        self.given_up = threading.Event()

    def join(self, state: TrainingState) -> RankAssignment:
        if self._rank == 0:
            super().join(state)
        return RankAssignment(self._rank, 2, self._store, 2, lambda _: None)

    def report_completion(self, summary: str) -> None:
        self.summaries.append(summary)

    def handle_group_loss(self, reason: str) -> None:
        raise AssertionError(f"rank {self._rank} has left the group: {reason}")

    def give_up(self, reason: str) -> None:
        assert "completing the run" in reason
        self.given_up.set()


@pytest.fixture
def pair() -> list[PairedGroup]:
    timeout = timedelta(seconds=STORE_SECONDS)
    server = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False, timeout=timeout
    )
    stores = [
        server,
        TCPStore(
            "127.0.0.1", server.port, wait_for_workers=False, use_libuv=False, timeout=timeout
        ),
    ]
    return [PairedGroup(rank, store) for rank, store in enumerate(stores)]


def train_in_threads(groups: list[PairedGroup], **options: Any) -> None:
    """Train one step on each worker of a pair."""
    runs = [start_run(group, max_steps=1, **options) for group in groups]

    def train(rank: int) -> None:
        run, model, _ = runs[rank]
        for batch in run:
            compute(batch, model)

    with ThreadPoolExecutor(len(runs)) as executor:
        list(executor.map(train, range(len(runs))))


def test_the_others_wait_for_a_last_checkpoint_that_is_written_slowly(
    pair: list[PairedGroup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_state = files.write_state

    def write_slowly(path: Path, state: Tensors, disk: Disk) -> tuple[int, int]:
        for _ in range(30):
            time.sleep(STORE_SECONDS / 10)
            disk.note_response()
        return write_state(path, state, disk)

    monkeypatch.setattr(files, "write_state", write_slowly)

    train_in_threads(pair, checkpoint=tmp_path / "run", storage_timeout_seconds=1)

    assert [len(group.summaries) for group in pair] == [1, 0]


def test_a_saver_that_hangs_after_the_last_checkpoint_gives_up(
    pair: list[PairedGroup], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for it without a limit."""
    monkeypatch.setattr(training_state, "COLLECTIVE_SECONDS", 0.5)

    def hang(_: object) -> None:
        assert pair[0].given_up.wait(100)

    train_in_threads(
        pair,
        checkpoint=tmp_path / "run",
        storage_timeout_seconds=1,
        hooks=RunHooks(completed=hang),
    )

    assert pair[0].given_up.is_set()
