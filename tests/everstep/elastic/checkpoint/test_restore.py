"""A committed checkpoint that is damaged or missing stops the run unless a user accepts the loss."""

import time
import weakref
from pathlib import Path

import pytest
import torch

from everstep.elastic.checkpoint import files
from everstep.elastic.checkpoint.files import Manifest
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.restore import (
    CommitRecord,
    LostCheckpointError,
    restore_point,
)

RUN = {"model": "tiny"}


def save(folder: Path, step: int, generation: int = 8) -> Path:
    manifest = Manifest(step, generation, RUN)
    return files.write(folder, {"w": torch.zeros(4)}, manifest, commit=lambda _: True, keep=9)


def test_a_missing_committed_checkpoint_stops_the_run_and_names_step_and_option(
    tmp_path: Path,
) -> None:
    save(tmp_path, 40)

    with pytest.raises(LostCheckpointError) as error:
        restore_point(FolderStore(tmp_path), RUN, CommitRecord(8, 5000), wait_seconds=0)

    assert "the committed checkpoint of step 5000" in error.value.problem
    assert "is missing; the newest valid one is of step 40" in error.value.problem
    assert "--accept-older-checkpoint=5000" in error.value.fix
    assert "Run(accept_older_checkpoint=5000)" in error.value.fix, "a script has no such flag"
    assert "continues from step 40 and repeats 4,960 steps" in error.value.fix


def test_a_damaged_committed_checkpoint_stops_the_run_and_the_error_describes_the_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 40)
    (save(tmp_path, 48) / files.STATE_FILE).write_bytes(b"torn")
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waiting does not repair it"))

    with pytest.raises(LostCheckpointError, match=r"damaged \(its state has 4 bytes instead of"):
        restore_point(FolderStore(tmp_path), RUN, CommitRecord(8, 48))


def test_the_damage_of_another_checkpoint_is_not_the_reason_for_a_missing_one(
    tmp_path: Path,
) -> None:
    (save(tmp_path, 40) / files.STATE_FILE).write_bytes(b"torn")

    with pytest.raises(LostCheckpointError, match="is missing; there is no other valid one"):
        restore_point(FolderStore(tmp_path), RUN, CommitRecord(8, 48), wait_seconds=0)


def test_a_checkpoint_of_another_run_does_not_hide_that_the_committed_one_is_missing(
    tmp_path: Path,
) -> None:
    save(tmp_path, 40)
    files.write(
        tmp_path, {"w": torch.zeros(4)}, Manifest(48, 8, {"model": "other"}), commit=lambda _: True
    )

    with pytest.raises(LostCheckpointError, match="is missing; the newest valid one is of step 40"):
        restore_point(FolderStore(tmp_path), RUN, CommitRecord(8, 56), wait_seconds=0)


def test_a_run_with_a_commit_does_not_start_again_in_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(LostCheckpointError, match="there is no other valid one"):
        restore_point(
            FolderStore(tmp_path / "unmounted"), RUN, CommitRecord(8, 5000), wait_seconds=0
        )


def test_an_accepted_loss_is_reported_and_the_run_continues_from_an_older_checkpoint(
    tmp_path: Path,
) -> None:
    save(tmp_path, 40)
    damaged_folder = save(tmp_path, 48)
    (damaged_folder / files.STATE_FILE).write_bytes(b"torn")
    losses = list[LostCheckpointError]()

    checkpoint = restore_point(
        FolderStore(tmp_path), RUN, CommitRecord(8, 48), accept_lost_step=48, on_lost=losses.append
    )

    assert checkpoint is not None
    assert checkpoint.manifest.step == 40
    assert [(lost.record.step, lost.restored_step) for lost in losses] == [(48, 40)]
    assert not damaged_folder.exists(), "it must not count as newer if it becomes readable later"


def test_the_accepted_loss_of_one_step_accepts_no_other_loss(tmp_path: Path) -> None:
    save(tmp_path, 40)

    with pytest.raises(LostCheckpointError):
        restore_point(
            FolderStore(tmp_path), RUN, CommitRecord(9, 96), accept_lost_step=48, wait_seconds=0
        )


def test_a_folder_of_more_steps_but_of_an_earlier_generation_is_not_the_committed_one(
    tmp_path: Path,
) -> None:
    save(tmp_path, 48, generation=9)
    save(tmp_path, 5000, generation=3)  # readable again, after its loss was accepted

    checkpoint = restore_point(FolderStore(tmp_path), RUN, CommitRecord(9, 48))

    assert checkpoint is not None
    assert checkpoint.manifest.step == 48, "the record in etcd counts, not the highest name"


def test_a_checkpoint_newer_than_the_record_of_a_restored_etcd_is_used(tmp_path: Path) -> None:
    save(tmp_path, 48)
    save(tmp_path, 56, generation=9)

    checkpoint = restore_point(FolderStore(tmp_path), RUN, CommitRecord(8, 48))

    assert checkpoint is not None
    assert checkpoint.manifest.step == 56


def test_without_a_record_the_newest_valid_checkpoint_is_used(tmp_path: Path) -> None:
    save(tmp_path, 40)
    save(tmp_path, 48)
    (save(tmp_path, 56) / files.STATE_FILE).write_bytes(b"torn")

    checkpoint = restore_point(FolderStore(tmp_path), RUN, CommitRecord())

    assert checkpoint is not None
    assert checkpoint.manifest.step == 48


class ObservedStore(FolderStore):
    """A store that counts the checkpoints in memory."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.checked = weakref.WeakSet[files.Checkpoint]()
        self.max_count = 0

    def check(self, name: str) -> files.Checkpoint:
        self.max_count = max(self.max_count, len(self.checked))
        checkpoint = super().check(name)
        # Manifests contain dicts, so checkpoints are hashed by identity.
        self.checked.add(checkpoint)
        return checkpoint


def test_one_older_checkpoint_is_in_memory_while_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.Checkpoint, "__hash__", object.__hash__)
    for step in range(8, 48, 8):
        save(tmp_path, step)
    store = ObservedStore(tmp_path)

    with pytest.raises(LostCheckpointError, match="newest valid one is of step 40"):
        restore_point(store, RUN, CommitRecord(8, 5000), wait_seconds=0)

    assert store.max_count == 1
