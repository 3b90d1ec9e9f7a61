"""The conversion of images to shards."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from everstep.errors import EverstepError
from everstep.progress import Silent
from tests.trainer.data.photographs import write_photographs
from trainer import data, prepare
from trainer.data import jpeg
from trainer.data.convert import convert, shard_samples
from trainer.data.folder import ImageFile
from trainer.data.shard import Resizing, ShardTask, convert_shard, resize

SMALL_RESIZING = Resizing(short_side=32)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_photographs(tmp_path / "photographs", per_class=4)


def write_shards(
    source: Path, output: Path, resizing: Resizing = SMALL_RESIZING, processes: int = 1
) -> str:
    return convert(source, output, resizing, processes, Silent())


def test_shards_contain_the_resized_images(source: Path, tmp_path: Path) -> None:
    summary = write_shards(source, tmp_path / "shards")

    folder_dataset = data.load("imagefolder", source, "test", 28)
    shard_dataset = data.load("imagefolder", tmp_path / "shards", "test", 28)
    (from_shards, labels), (from_folder, folder_labels) = (
        d.test_batch(np.arange(8)) for d in (shard_dataset, folder_dataset)
    )
    assert "8 train and 8 test images in 2 classes" in summary
    assert list(labels) == list(folder_labels)
    assert np.abs(from_shards.astype(int) - from_folder).mean() < 5


def test_the_command_writes_shards_and_then_verifies_them(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--dataset", "imagefolder", "--output", str(tmp_path / "shards")]

    assert (
        prepare.main([*arguments, "--source", str(source), "--short-side", "32", "--processes=1"])
        == 0
    )
    assert prepare.main(arguments) == 0

    assert "train: 8 images in 2 classes, contents " in capsys.readouterr().out


def test_a_repeated_conversion_does_nothing_and_a_different_one_is_refused(
    source: Path, tmp_path: Path
) -> None:
    first_summary = write_shards(source, tmp_path / "shards")
    written_at = (tmp_path / "shards" / "manifest.json").stat().st_mtime_ns

    assert write_shards(source, tmp_path / "shards") == first_summary
    assert (tmp_path / "shards" / "manifest.json").stat().st_mtime_ns == written_at
    with pytest.raises(EverstepError, match="shards of other files or of another size"):
        write_shards(source, tmp_path / "shards", Resizing(short_side=40))


def test_a_link_as_output_is_refused_before_the_conversion(source: Path, tmp_path: Path) -> None:
    """The finished folder is renamed, which would fail after hours."""
    (tmp_path / "disk").mkdir()
    output = tmp_path / "shards"
    output.symlink_to(tmp_path / "disk")

    with pytest.raises(EverstepError, match="is a link, so that") as error:
        write_shards(source, output)
    assert str(output / "shards") in error.value.fix


def test_the_top_of_a_volume_as_output_is_refused_before_the_conversion(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "volume")

    with pytest.raises(EverstepError, match="is the top of a mounted volume, so that"):
        write_shards(source, tmp_path / "volume")
    assert list(tmp_path.glob(".*")) == []


def test_every_invalid_file_is_named_and_skipped_only_on_request(
    source: Path, tmp_path: Path
) -> None:
    truncated_file = source / "train" / "dog" / "1.jpg"
    truncated_file.write_bytes(truncated_file.read_bytes()[:500])
    (source / "test" / "cat" / "notes.txt").write_text("not an image")

    with pytest.raises(EverstepError, match=r"2 file\(s\) are not valid JPEGs") as error:
        write_shards(source, tmp_path / "shards")
    assert "dog/1.jpg: it is truncated" in error.value.problem
    assert "cat/notes.txt: it is not a JPEG" in error.value.problem
    assert not (tmp_path / "shards").exists()

    summary = write_shards(source, tmp_path / "shards", Resizing(short_side=32, skip_bad=True))
    assert "7 train and 8 test" in summary
    assert "2 invalid files skipped" in summary


def test_a_failed_conversion_resumes(source: Path, tmp_path: Path) -> None:
    damaged_file = source / "test" / "dog" / "3.jpg"
    content = damaged_file.read_bytes()
    damaged_file.write_bytes(b"torn")
    with pytest.raises(EverstepError, match="not valid JPEGs"):
        write_shards(source, tmp_path / "shards")
    (shard,) = (tmp_path / ".shards.partial").glob("train-*.jpegs")
    inode = shard.stat().st_ino

    damaged_file.write_bytes(content)
    write_shards(source, tmp_path / "shards")

    assert (tmp_path / "shards" / shard.name).stat().st_ino == inode, "converted a second time"
    (test_shard,) = (tmp_path / "shards").glob("test-*.jpegs")
    assert not (tmp_path / ".shards.partial").exists()
    assert {path.name for path in (tmp_path / "shards").iterdir()} == {
        "manifest.json", "train-index.npy", "test-index.npy", shard.name, test_shard.name,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["two\nlines", os.fsdecode(b"caf\xe9")])
def test_a_finished_shard_has_the_same_invalid_files_again(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not an image")
    task = ShardTask(
        source=tmp_path,
        files=[ImageFile(name, 0, 12)],
        target=tmp_path / "train-00000.jpegs",
        resizing=Resizing(skip_bad=True),
    )

    first_result = convert_shard(task)

    assert first_result.invalid_files == [f"{tmp_path / name}: it is not a JPEG"]
    assert convert_shard(task) == first_result


def test_a_truncated_shard_is_refused_when_it_is_opened(source: Path, tmp_path: Path) -> None:
    write_shards(source, tmp_path / "shards")
    (file,) = (tmp_path / "shards").glob("train-*.jpegs")
    file.write_bytes(file.read_bytes()[:-1])

    with pytest.raises(EverstepError, match=r"train-.*jpegs has \d+ bytes instead of"):
        data.load("imagefolder", tmp_path / "shards", "train", 28)


def test_a_flipped_byte_is_detected_by_the_checksum_of_the_image(
    source: Path, tmp_path: Path
) -> None:
    write_shards(source, tmp_path / "shards")
    (file,) = (tmp_path / "shards").glob("train-*.jpegs")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    train = data.load("imagefolder", tmp_path / "shards", "train", 28)

    with pytest.raises(EverstepError, match=r"image \d+ in .*: its checksum differs"):
        train.train_batch(np.arange(8), 0, 0)


def test_shards_of_another_format_are_named(source: Path, tmp_path: Path) -> None:
    write_shards(source, tmp_path / "shards")
    manifest = tmp_path / "shards" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 99}))

    with pytest.raises(EverstepError, match="have format 99"):
        data.load("imagefolder", tmp_path / "shards", "train", 28)


def test_names_that_are_not_utf8_are_accepted(source: Path, tmp_path: Path) -> None:
    cafe = os.fsdecode(b"caf\xe9")
    for split in ("train", "test"):
        (source / split / "cat").rename(source / split / cafe)
    (source / "test" / cafe / cafe).write_bytes(b"not an image")
    resizing = Resizing(short_side=32, skip_bad=True)
    output = tmp_path / "shards"

    assert "in 2 classes" in write_shards(source, output, resizing)

    output.rename(tmp_path / ".again.partial")
    assert "1 invalid files skipped" in write_shards(source, tmp_path / "again", resizing)
    assert len(data.load("imagefolder", tmp_path / "again", "test", 28)) == 8


def test_a_photograph_that_cannot_be_encoded_is_invalid(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photograph = np.fromfile(source / "train" / "cat" / "0.jpg", np.uint8)
    monkeypatch.setattr(jpeg.opencv(), "imencode", lambda *_: (False, ()))

    with pytest.raises(ValueError, match="cannot encode it with 41 x 32 pixels"):
        resize(photograph, SMALL_RESIZING)


def test_a_broken_link_is_named(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = source / "train" / "cat" / "gone.jpg"
    link.symlink_to("nowhere")

    arguments = ["--dataset", "imagefolder", "--source", str(source)]
    assert prepare.main([*arguments, "--output", str(tmp_path / "shards")]) == 1

    assert f"error: {link} cannot be read: No such file" in capsys.readouterr().err


def test_a_split_without_images_is_an_error(source: Path, tmp_path: Path) -> None:
    for file in source.glob("test/*/*"):
        file.unlink()

    with pytest.raises(EverstepError, match="no valid image in the split test"):
        write_shards(source, tmp_path / "shards")


def test_splits_with_different_classes_are_refused(source: Path, tmp_path: Path) -> None:
    (source / "test" / "dog").rename(source / "test" / "dogs")

    with pytest.raises(EverstepError, match="only one has 'dog', 'dogs'"):
        write_shards(source, tmp_path / "shards")


@pytest.mark.parametrize("kind", ["photographs", "shards"])
def test_the_identity_describes_the_data_and_changes_with_it(
    source: Path, tmp_path: Path, kind: str
) -> None:
    def identity(name: str) -> str:
        folder = source
        if kind == "shards":
            folder = tmp_path / name
            write_shards(source, folder)
        return data.load("imagefolder", folder, "train", 28).identity

    first_identity = identity("first")
    image = source / "train" / "cat" / "2.jpg"
    image.write_bytes((source / "train" / "dog" / "0.jpg").read_bytes())
    changed_identity = identity("second")
    image.unlink()
    reduced_identity = identity("third")

    assert first_identity.startswith("8 images in 2 classes, contents ")
    assert changed_identity.startswith("8 images in 2 classes, contents ")
    assert reduced_identity.startswith("7 images in 2 classes, contents ")
    assert len({first_identity, changed_identity, reduced_identity}) == 3


def test_a_data_set_is_split_into_a_few_large_shards() -> None:
    assert [shard_samples(n) for n in (1, 500, 16_000, 1_281_167)] == [64, 64, 1000, 8192]
