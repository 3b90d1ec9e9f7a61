"""Checkpoints in a folder: written, restored, damaged, removed."""

import json
import math
import random
import shutil
import zlib
from pathlib import Path

import pytest
import torch

from everstep.elastic.checkpoint import files, restore
from everstep.elastic.checkpoint.files import FencedError, Manifest
from everstep.elastic.checkpoint.folder_store import FolderStore
from everstep.elastic.checkpoint.restore import OtherRunError, SkippedCheckpoint
from everstep.elastic.checkpoint.state_format import EncodedState
from tests.everstep.elastic.checkpoint.simulated_disk import SimulatedDisk

FINGERPRINT = {"model": "tiny", "seed": 1}


def save(
    folder: Path,
    step: int,
    fill: float = 0.0,
    *,
    keep: int = 3,
    fingerprint: dict[str, object] | None = None,
) -> Path:
    state = {"weight": torch.full((300,), fill), "bias": torch.arange(4)}
    manifest = Manifest(step, 1, fingerprint or FINGERPRINT, {"evaluated": 0})
    return files.write(folder, state, manifest, commit=lambda manifest: True, keep=keep)


def test_a_written_checkpoint_is_restored(tmp_path: Path) -> None:
    save(tmp_path, 7, 0.5)

    checkpoint = restore.newest_checkpoint(FolderStore(tmp_path), FINGERPRINT)

    assert checkpoint is not None
    assert checkpoint.manifest.step == 7
    assert checkpoint.manifest.extra == {"evaluated": 0}
    assert torch.equal(checkpoint.load()["weight"], torch.full((300,), 0.5))


@pytest.mark.parametrize(("size", "syncs"), [(8, 1), (200, 4)])
def test_a_large_state_is_synced_in_pieces(
    size: int, syncs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single sync of a large state is a long time without a sign of progress."""
    monkeypatch.setattr(files, "SYNC_BYTES", 300)
    disk = SimulatedDisk()
    state = {"large": torch.rand(size), "empty": torch.ones(0), "small": torch.arange(4)}
    path = Path("/state")

    written_size, checksum = files.write_state(path, state, disk)

    content = b"".join(disk.read(path))
    assert (len(content), zlib.crc32(content)) == (written_size, checksum)
    assert content == b"".join(map(bytes, EncodedState(state)))
    assert disk.operations.count(("sync", "state")) == syncs
    assert disk.max_unsynced_bytes <= 300


def test_a_missing_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert restore.newest_checkpoint(FolderStore(tmp_path / "no"), FINGERPRINT) is None


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step, keep=2)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000004", "step-00000005"]


def test_checkpoints_are_ordered_by_number_beyond_the_zero_padded_width(tmp_path: Path) -> None:
    """Sorted as text, step 99,999,999 would stay the newest, and each later checkpoint would be removed."""
    (tmp_path / ".step-99999998-1-1").mkdir()
    for step in (99_999_998, 99_999_999, 100_000_000, 100_000_001):
        save(tmp_path, step, keep=2)

    store = FolderStore(tmp_path)
    assert store.names() == ["step-100000001", "step-100000000"]
    newest = restore.newest_checkpoint(store, FINGERPRINT)
    assert newest is not None
    assert newest.manifest.step == 100_000_001
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-100000000", "step-100000001"]


def test_files_of_a_killed_writer_are_never_read_and_are_removed_by_the_next_write(
    tmp_path: Path,
) -> None:
    (tmp_path / ".step-00000003-1-1").mkdir()

    assert restore.newest_checkpoint(FolderStore(tmp_path), FINGERPRINT) is None
    save(tmp_path, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000004"]


def test_any_damage_is_detected_and_the_previous_checkpoint_is_used(tmp_path: Path) -> None:
    rng = random.Random(3)
    run_folder = tmp_path / "run"
    previous_folder = save(run_folder, 2)
    damaged_folder = save(run_folder, 3)
    intact_copy = shutil.copytree(damaged_folder, tmp_path / "intact")
    intact = restore.newest_checkpoint(FolderStore(run_folder), FINGERPRINT)
    assert intact is not None
    assert intact.location == str(damaged_folder)
    for number in range(40):
        shutil.rmtree(damaged_folder)
        shutil.copytree(intact_copy, damaged_folder)
        file = damaged_folder / rng.choice([files.STATE_FILE, files.MANIFEST_FILE])
        content = bytearray(file.read_bytes())
        if number % 2:
            content = content[: rng.randrange(len(content))]
        else:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        file.write_bytes(content)
        skipped_checkpoints: list[SkippedCheckpoint] = []
        restored = restore.newest_checkpoint(
            FolderStore(run_folder), FINGERPRINT, skipped_checkpoints.append
        )
        assert restored is not None
        assert restored.location == str(previous_folder)
        assert [skip.name for skip in skipped_checkpoints] == [damaged_folder.name]


def test_every_changed_byte_of_a_manifest_is_detected(tmp_path: Path) -> None:
    manifest = save(tmp_path, 1) / files.MANIFEST_FILE
    content = manifest.read_bytes()

    for position in range(len(content)):
        damaged_content = bytearray(content)
        damaged_content[position] = ord("\t" if damaged_content[position] == ord(" ") else " ")
        manifest.write_bytes(damaged_content)
        with pytest.raises(ValueError, match="manifest"):
            files.check(manifest.parent)


def test_a_manifest_of_another_format_is_skipped_with_a_reason(tmp_path: Path) -> None:
    save(tmp_path, 1)
    other_folder = tmp_path / "step-00000009"
    other_folder.mkdir()
    (other_folder / "manifest.json").write_text(json.dumps({"epoch": 3}, indent=1))
    skipped_checkpoints: list[SkippedCheckpoint] = []

    checkpoint = restore.newest_checkpoint(
        FolderStore(tmp_path), FINGERPRINT, skipped_checkpoints.append
    )

    assert checkpoint is not None
    assert checkpoint.manifest.step == 1
    assert [skip.reason for skip in skipped_checkpoints] == ["its manifest has another format"]


def test_a_checkpoint_of_another_model_is_an_error_with_the_difference(tmp_path: Path) -> None:
    save(tmp_path, 1, fingerprint={"model": "other", "seed": 1})

    with pytest.raises(OtherRunError, match="model is 'other' there and 'tiny' here") as error:
        restore.newest_checkpoint(FolderStore(tmp_path), FINGERPRINT)

    assert "--fresh" in error.value.fix


def test_a_torn_checkpoint_of_another_model_is_only_skipped(tmp_path: Path) -> None:
    folder = save(tmp_path, 1, fingerprint={"model": "other", "seed": 1})
    (folder / files.STATE_FILE).write_bytes(b"")

    assert restore.newest_checkpoint(FolderStore(tmp_path), FINGERPRINT) is None


def test_the_checkpoint_of_a_fenced_worker_is_never_read_and_is_removed_by_the_next_write(
    tmp_path: Path,
) -> None:
    with pytest.raises(FencedError, match="its commit by generation 1 was refused"):
        files.write(
            tmp_path,
            {"a": torch.ones(1)},
            Manifest(1, 1, FINGERPRINT),
            commit=lambda manifest: False,
        )

    assert restore.newest_checkpoint(FolderStore(tmp_path), FINGERPRINT) is None
    save(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_a_commit_with_a_lost_response_is_completed_on_restore(
    tmp_path: Path,
) -> None:
    save(tmp_path, 6)
    with pytest.raises(FencedError):
        files.write(
            tmp_path,
            {"a": torch.ones(1)},
            Manifest(7, 3, FINGERPRINT),
            commit=lambda manifest: False,
        )

    files.place_committed(tmp_path, generation=3, step=7)  # etcd has recorded the commit

    restored = restore.newest_checkpoint(FolderStore(tmp_path), FINGERPRINT)
    assert restored is not None
    assert restored.manifest.step == 7


def test_an_uncommitted_checkpoint_stays_in_its_staging_folder(
    tmp_path: Path,
) -> None:
    save(tmp_path, 6)
    with pytest.raises(FencedError):
        files.write(
            tmp_path,
            {"a": torch.ones(1)},
            Manifest(7, 3, FINGERPRINT),
            commit=lambda manifest: False,
        )

    files.place_committed(tmp_path, generation=4, step=7)
    files.place_committed(tmp_path, generation=3, step=6)

    restored = restore.newest_checkpoint(FolderStore(tmp_path), FINGERPRINT)
    assert restored is not None
    assert restored.manifest.step == 6


def test_the_staging_folder_of_another_writer_of_the_same_step_is_kept(tmp_path: Path) -> None:
    with pytest.raises(FencedError):
        files.write(
            tmp_path,
            {"a": torch.ones(1)},
            Manifest(7, 3, FINGERPRINT),
            commit=lambda manifest: False,
        )
    save(tmp_path, 7)  # in generation 1, before it learns of generation 3

    files.place_committed(tmp_path, generation=3, step=7)  # etcd has recorded the commit

    restored = restore.newest_checkpoint(FolderStore(tmp_path), FINGERPRINT)
    assert restored is not None
    assert restored.manifest.generation == 3


def test_a_late_writer_of_an_older_step_removes_no_newer_checkpoint(tmp_path: Path) -> None:
    for step in (5, 7, 9):
        save(tmp_path, step)

    save(tmp_path, 6, keep=1)

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["step-00000006", "step-00000007", "step-00000009"]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (4, 3, 5, 5)])
def test_every_type_shape_and_memory_layout_is_restored_with_its_values(
    tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    values = torch.arange(300)[: math.prod(shape)].reshape(shape).to(dtype)
    if len(shape) == 4:
        values = values.to(memory_format=torch.channels_last)
    state = {"odd": torch.ones(3, dtype=torch.uint8), "numbers": values, "more": torch.ones(2)}

    files.write(tmp_path, state, Manifest(1, 1, FINGERPRINT), commit=lambda manifest: True)

    restored = restore.newest_checkpoint(FolderStore(tmp_path), FINGERPRINT)
    assert restored is not None
    tensors = restored.load()
    assert tensors.keys() == state.keys()
    for name, tensor in state.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    path = save(tmp_path, 1)

    manifest = json.loads((path / "manifest.json").read_text())

    assert manifest["step"] == 1
    assert manifest["fingerprint"] == FINGERPRINT


def test_a_folder_that_is_not_named_after_its_step_is_skipped(tmp_path: Path) -> None:
    valid_folder = save(tmp_path, 3)
    shutil.copytree(valid_folder, tmp_path / "step-00000099")
    skipped_checkpoints: list[SkippedCheckpoint] = []

    checkpoint = restore.newest_checkpoint(
        FolderStore(tmp_path), FINGERPRINT, skipped_checkpoints.append
    )

    assert checkpoint is not None
    assert checkpoint.location == str(valid_folder)
    assert [skip.reason for skip in skipped_checkpoints] == [
        "its folder is not named after its step, 3"
    ]
