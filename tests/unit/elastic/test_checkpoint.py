import json
import math
import random
import shutil
from pathlib import Path

import pytest
import torch

from everstep.elastic import checkpoint
from everstep.elastic.checkpoint import FencedError, Manifest, OtherRunError, Skipped

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


def test_no_byte_of_a_manifest_can_change_unseen(tmp_path):
    manifest = save(tmp_path, 1) / checkpoint.MANIFEST_FILE
    content = manifest.read_bytes()

    for place in range(len(content)):
        other = bytearray(content)
        other[place] = ord("\t" if other[place] == ord(" ") else " ")
        manifest.write_bytes(other)
        if bytes(other) != content:
            with pytest.raises(ValueError, match="manifest"):
                checkpoint.check(manifest.parent)


def test_a_foreign_file_is_skipped_with_a_reason(tmp_path):
    save(tmp_path, 1)
    foreign = tmp_path / "step-00000009"
    foreign.mkdir()
    (foreign / "manifest.json").write_text(json.dumps({"epoch": 3}, indent=1))
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


def test_a_fenced_worker_s_checkpoint_is_never_read_and_goes_with_the_next_write(tmp_path):
    with pytest.raises(FencedError):
        checkpoint.write(
            tmp_path, {"a": torch.ones(1)}, Manifest(1, 1, RUN), commit=lambda manifest: False
        )

    assert checkpoint.newest(tmp_path, RUN) is None
    save(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_a_commit_whose_answer_was_lost_is_put_in_place_by_the_one_who_restores(tmp_path):
    save(tmp_path, 6)
    with pytest.raises(FencedError):
        checkpoint.write(
            tmp_path, {"a": torch.ones(1)}, Manifest(7, 3, RUN), commit=lambda manifest: False
        )

    checkpoint.complete(tmp_path, generation=3, step=7)  # etcd says that it was committed

    found = checkpoint.newest(tmp_path, RUN)
    assert found is not None
    assert found.manifest.step == 7


def test_a_checkpoint_that_was_written_aside_but_never_committed_stays_where_it_is(tmp_path):
    save(tmp_path, 6)
    with pytest.raises(FencedError):
        checkpoint.write(
            tmp_path, {"a": torch.ones(1)}, Manifest(7, 3, RUN), commit=lambda manifest: False
        )

    checkpoint.complete(tmp_path, generation=4, step=7)
    checkpoint.complete(tmp_path, generation=3, step=6)

    found = checkpoint.newest(tmp_path, RUN)
    assert found is not None
    assert found.manifest.step == 6


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (4, 3, 5, 5)])
def test_any_type_shape_and_memory_layout_comes_back_with_its_values(tmp_path, dtype, shape):
    numbers = torch.arange(300)[: math.prod(shape)].reshape(shape).to(dtype)
    if len(shape) == 4:
        numbers = numbers.to(memory_format=torch.channels_last)
    state = {"odd": torch.ones(3, dtype=torch.uint8), "numbers": numbers, "more": torch.ones(2)}

    checkpoint.write(tmp_path, state, Manifest(1, 1, RUN), commit=lambda manifest: True)

    found = checkpoint.newest(tmp_path, RUN)
    assert found is not None
    read = found.load()
    assert read.keys() == state.keys()
    for name, tensor in state.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)


def test_the_manifest_is_json_that_others_can_read(tmp_path):
    path = save(tmp_path, 1)

    manifest = json.loads((path / "manifest.json").read_text())

    assert manifest["step"] == 1
    assert manifest["fingerprint"] == RUN
