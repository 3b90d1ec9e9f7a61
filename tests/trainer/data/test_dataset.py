"""Data sets in folders."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from everstep.errors import EverstepError
from tests.trainer.data.fashion_mnist import idx, write_source
from trainer import data, prepare
from trainer.data.device import InputConversion


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            for number in range(3):
                pixels = rng.integers(0, 255, (40, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / name / f"{number}.png")
    return tmp_path


def test_a_folder_of_images_has_a_class_for_each_folder(folder: Path) -> None:
    train = data.load("imagefolder", folder, "train", 32)

    images, labels = train.train_batch(np.array([0, 5]), seed=1, epoch=0)

    assert (len(train), train.class_count) == (6, 2)
    assert images.shape == (2, 32, 32, 3)
    assert list(labels) == [0, 1]


def test_the_evaluation_folder_may_be_named_val(folder: Path) -> None:
    (folder / "test").rename(folder / "val")

    assert len(data.load("imagefolder", folder, "test", 32)) == 6


def test_the_error_for_an_empty_folder_describes_the_expected_layout(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()

    with pytest.raises(EverstepError, match="contains no images in class folders") as error:
        data.load("imagefolder", tmp_path, "train", 32)

    assert f"{tmp_path}/train/<class>/" in error.value.fix


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_folder_whose_splits_have_different_classes_is_refused(folder: Path, split: str) -> None:
    (folder / "test" / "cat").rename(folder / "test" / "eel")

    with pytest.raises(EverstepError, match="only one has 'cat', 'eel'"):
        data.load("imagefolder", folder, split, 32)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match="train does not exist"):
        data.load("imagefolder", tmp_path, "train", 32)


def test_an_invalid_image_is_reported_with_its_path(folder: Path) -> None:
    invalid_file = folder / "train" / "dog" / "1.png"
    invalid_file.write_bytes(b"not an image")
    train = data.load("imagefolder", folder, "train", 32)

    with pytest.raises(EverstepError, match=re.escape(str(invalid_file))):
        train.train_batch(np.arange(6), seed=0, epoch=0)


def test_preparing_a_folder_reports_every_invalid_image(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train" / "dog" / "1.png").write_bytes(b"not an image")
    (folder / "test" / "cat" / "0.png").write_bytes(b"not an image")

    assert prepare.main(["--dataset", "imagefolder", "--output", str(folder)]) == 1

    errors = capsys.readouterr().err
    assert "2 file(s)" in errors
    assert "dog/1.png" in errors
    assert "cat/0.png" in errors


def test_the_error_for_unprepared_data_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match=r"manifest\.json is missing") as error:
        data.load("fashion-mnist", tmp_path, "train", 28)

    assert "trainer.prepare" in error.value.fix


def test_changed_labels_change_the_identity_of_the_data(tmp_path: Path) -> None:
    def identity(name: str) -> str:
        prepare.prepare_fashion_mnist(tmp_path / "source", tmp_path / name)
        return data.load("fashion-mnist", tmp_path / name, "train", 28).identity

    source = write_source(tmp_path / "source", train=20, test=4)
    first_identity, same_identity = identity("first"), identity("same")
    (source / "train-labels-idx1-ubyte.gz").write_bytes(idx(np.zeros(20, np.uint8)))

    assert first_identity == same_identity
    assert identity("corrected") != first_identity, "a run must not continue with other labels"


@pytest.mark.parametrize("key", ["classes", "mean", "files"])
def test_an_incomplete_manifest_is_reported(tmp_path: Path, key: str) -> None:
    source = write_source(tmp_path / "source", train=4, test=4)
    prepare.prepare_fashion_mnist(source, tmp_path / "data")
    manifest = json.loads((tmp_path / "data" / "manifest.json").read_text())
    del manifest[key]
    (tmp_path / "data" / "manifest.json").write_text(json.dumps(manifest))

    with pytest.raises(EverstepError, match=f"manifest.json is incomplete: KeyError: '{key}'"):
        data.load("fashion-mnist", tmp_path / "data", "train", 28)


def test_gray_images_become_valid_model_input(folder: Path) -> None:
    train = data.load("imagefolder", folder, "train", 32)
    train.mean, train.deviation = (0.5,), (0.25,)
    prepare_batch = InputConversion(train, torch.device("cpu"), torch.channels_last)

    batch = prepare_batch(np.full((2, 8, 8, 1), 255, np.uint8))

    assert batch.shape == (2, 3, 8, 8)
    assert torch.allclose(batch, torch.full((2, 3, 8, 8), 2.0))
