import errno
import json
import os
import random
import shutil
import threading
from pathlib import Path

import pytest
import torch

from everstep.elastic import checkpoint
from everstep.elastic.checkpoint import FencedError, Manifest, OtherRunError, Skipped, Writer

RUN = {"model": "tiny", "seed": 1}


def save(
    folder: Path, step: int, fill: float = 0.0, *, keep: int = 3, run: dict | None = None
) -> Path:
    state = {"weight": torch.full((300,), fill), "bias": torch.arange(4)}
    manifest = Manifest(step, 1, run or RUN, {"evaluated": 0})
    return checkpoint.write(folder, state, manifest, commit=lambda manifest: True, keep=keep)


def test_what_was_written_comes_back(tmp_path):
    save(tmp_path, 7, 0.5)

    found = checkpoint.newest(tmp_path, RUN)

    assert found is not None
    assert found.manifest.step == 7
    assert found.manifest.extra == {"evaluated": 0}
    assert torch.equal(found.load()["weight"], torch.full((300,), 0.5))


def test_there_is_none_in_a_folder_that_does_not_exist(tmp_path):
    assert checkpoint.newest(tmp_path / "no", RUN) is None


def test_the_newest_few_are_kept(tmp_path):
    for step in range(1, 6):
        save(tmp_path, step, keep=2)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000004", "step-00000005"]


def test_what_a_killed_writer_left_is_never_read_and_goes_with_the_next_write(tmp_path):
    (tmp_path / ".step-00000003-1-1").mkdir()

    assert checkpoint.newest(tmp_path, RUN) is None
    save(tmp_path, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000004"]


def test_any_damage_is_found_and_the_one_before_is_taken(tmp_path):
    random.seed(3)
    save(tmp_path, 1)
    good = save(tmp_path, 2)
    for number in range(40):
        damaged = tmp_path / "step-00000003"
        shutil.copytree(good, damaged)
        file = damaged / random.choice([checkpoint.STATE_FILE, checkpoint.MANIFEST_FILE])
        content = bytearray(file.read_bytes())
        if number % 2:
            content = content[: random.randrange(len(content))]
        else:
            content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        file.write_bytes(content)
        skipped: list[Skipped] = []
        found = checkpoint.newest(tmp_path, RUN, skipped.append)
        assert found is not None
        assert found.path == good
        assert [skip.path for skip in skipped] == [damaged]
        shutil.rmtree(damaged)


def test_a_foreign_file_is_skipped_with_a_reason(tmp_path):
    save(tmp_path, 1)
    foreign = tmp_path / "step-00000009"
    foreign.mkdir()
    (foreign / "manifest.json").write_text('{"epoch": 3}')
    skipped: list[Skipped] = []

    found = checkpoint.newest(tmp_path, RUN, skipped.append)

    assert found is not None
    assert found.manifest.step == 1
    assert [skip.reason for skip in skipped] == ["its manifest is of another format"]


def test_a_checkpoint_of_another_model_is_an_error_that_says_what_differs(tmp_path):
    save(tmp_path, 1, run={"model": "other", "seed": 1})

    with pytest.raises(OtherRunError, match="model is 'other' there and 'tiny' here") as refused:
        checkpoint.newest(tmp_path, RUN)

    assert "--fresh" in refused.value.remedy


def test_a_torn_checkpoint_of_another_model_is_only_skipped(tmp_path):
    torn = save(tmp_path, 1, run={"model": "other", "seed": 1})
    (torn / checkpoint.STATE_FILE).write_bytes(b"")

    assert checkpoint.newest(tmp_path, RUN) is None


def test_a_fenced_worker_commits_nothing_and_leaves_nothing(tmp_path):
    with pytest.raises(FencedError):
        checkpoint.write(
            tmp_path, {"a": torch.ones(1)}, Manifest(1, 1, RUN), commit=lambda manifest: False
        )

    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_ends_no_training_and_leaves_older_checkpoints(tmp_path, monkeypatch):
    save(tmp_path, 1)
    failed: list[tuple[int, str]] = []
    writer = Writer(
        tmp_path,
        commit=lambda manifest: True,
        on_written=lambda *_: None,
        on_failed=lambda step, reason: failed.append((step, reason)),
    )

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    writer.start({"weight": torch.ones(3)}, Manifest(2, 1, RUN))
    writer.wait()

    assert failed == [(2, f"[Errno 28] no space left for a checkpoint: '{tmp_path}'")]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_a_snapshot_is_not_changed_by_the_steps_that_follow(tmp_path):
    hold, weight = threading.Event(), torch.zeros(10)
    writer = Writer(
        tmp_path,
        commit=lambda manifest: hold.wait(10),
        on_written=lambda *_: None,
        on_failed=lambda step, reason: pytest.fail(reason),
    )
    writer.start({"weight": weight}, Manifest(1, 1, RUN))
    weight += 1
    assert writer.busy
    hold.set()
    writer.wait()

    found = checkpoint.newest(tmp_path, RUN)
    assert found is not None
    assert torch.equal(found.load()["weight"], torch.zeros(10))


def test_tensors_in_any_memory_layout_keep_their_values(tmp_path):
    weight = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    writer = Writer(
        tmp_path,
        commit=lambda manifest: True,
        on_written=lambda *_: None,
        on_failed=lambda *a: pytest.fail(str(a)),
    )
    writer.start({"weight": weight}, Manifest(1, 1, RUN))
    writer.wait()

    found = checkpoint.newest(tmp_path, RUN)
    assert found is not None
    assert torch.equal(found.load()["weight"], weight)


def test_the_manifest_is_json_that_others_can_read(tmp_path):
    path = save(tmp_path, 1)

    manifest = json.loads((path / "manifest.json").read_text())

    assert manifest["step"] == 1
    assert manifest["fingerprint"] == RUN
