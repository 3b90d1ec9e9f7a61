"""The preparation of a data set."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from everstep.errors import EverstepError
from tests.trainer.data.fashion_mnist import write_source
from trainer import data, prepare


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source", train=30, test=10)


def test_prepared_data_can_be_loaded(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "deep" / "fashion-mnist"
    assert (
        prepare.main(
            ["--dataset", "fashion-mnist", "--source", str(source), "--output", str(output)]
        )
        == 0
    )

    train = data.load("fashion-mnist", output, "train", 28)
    images, labels = train.test_batch(np.array([3, 1]))

    assert (len(train), train.class_count) == (30, 10)
    source_images = idx_content(source / "train-images-idx3-ubyte.gz", header_bytes=16)
    assert np.array_equal(images, source_images.reshape(30, 28, 28, 1)[[3, 1]])
    source_labels = idx_content(source / "train-labels-idx1-ubyte.gz", header_bytes=8)
    assert np.array_equal(labels, source_labels[[3, 1]])
    assert labels.dtype == np.int64


def idx_content(file: Path, header_bytes: int) -> np.ndarray:
    """Return the bytes of a gzipped IDX file after its header."""
    return np.frombuffer(gzip.decompress(file.read_bytes()), np.uint8, offset=header_bytes)


def test_a_repeated_preparation_does_nothing(source: Path, tmp_path: Path) -> None:
    prepare.prepare_fashion_mnist(source, tmp_path / "out")
    written_at = (tmp_path / "out" / "manifest.json").stat().st_mtime_ns

    prepare.prepare_fashion_mnist(tmp_path / "gone", tmp_path / "out")

    assert (tmp_path / "out" / "manifest.json").stat().st_mtime_ns == written_at


def test_two_pods_can_prepare_one_folder_at_the_same_time(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processes of two pods often have the same number."""
    output, convert = tmp_path / "out", prepare._convert

    def convert_after_the_other_pod(idx_path: Path, target: Path) -> dict[str, object]:
        monkeypatch.setattr(prepare, "_convert", convert)
        monkeypatch.setattr("socket.gethostname", lambda: "other")
        prepare.prepare_fashion_mnist(source, output)
        return convert(idx_path, target)

    monkeypatch.setattr(prepare, "_convert", convert_after_the_other_pod)
    prepare.prepare_fashion_mnist(source, output)

    assert len(data.load("fashion-mnist", output, "train", 28)) == 30
    assert list(tmp_path.glob(".out*")) == []


def test_incomplete_data_are_prepared_again(source: Path, tmp_path: Path) -> None:
    prepare.prepare_fashion_mnist(source, tmp_path / "out")
    (tmp_path / "out" / "train-images.npy").write_bytes(b"torn")

    prepare.prepare_fashion_mnist(source, tmp_path / "out")

    assert len(data.load("fashion-mnist", tmp_path / "out", "train", 28)) == 30


def test_a_missing_source_names_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "--dataset",
        "fashion-mnist",
        "--source",
        str(tmp_path),
        "--output",
        str(tmp_path / "out"),
    ]

    assert prepare.main(arguments) == 1
    assert "dataset-fashion-mnist" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_output_below_a_file_is_reported_with_its_path(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / "file" / "out"
    arguments = ["--dataset", "fashion-mnist", "--source", str(source), "--output", str(output)]

    assert prepare.main(arguments) == 1
    assert f"{output.parent} cannot be read or written: File exists" in capsys.readouterr().err


def test_an_invalid_source_file_is_reported(source: Path, tmp_path: Path) -> None:
    (source / "t10k-labels-idx1-ubyte.gz").write_bytes(b"not gzip")

    with pytest.raises(
        EverstepError, match=r"t10k-labels-idx1-ubyte\.gz is not a gzipped IDX file"
    ):
        prepare.prepare_fashion_mnist(source, tmp_path / "out")


def test_a_source_file_with_damaged_bytes_is_reported(source: Path, tmp_path: Path) -> None:
    file = source / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(file.read_bytes())
    content[10:20] = bytes(10)  # after the header of gzip
    file.write_bytes(content)

    with pytest.raises(EverstepError, match="is not a gzipped IDX file"):
        prepare.prepare_fashion_mnist(source, tmp_path / "out")


def test_a_folder_with_other_files_is_not_removed(source: Path, tmp_path: Path) -> None:
    thesis = tmp_path / "home" / "thesis.tex"
    thesis.parent.mkdir()
    thesis.write_text("the only copy")

    with pytest.raises(EverstepError, match="home contains other data"):
        prepare.prepare_fashion_mnist(source, thesis.parent)

    assert thesis.read_text() == "the only copy"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--dataset", "imagefolder"], "--stage DATA needs a folder to copy it to"),
        (["--dataset", "imagefolder", "--source", "OUTPUT"], "needs a folder to copy it to"),
        (["--dataset", "fashion-mnist"], "--stage is for --dataset imagefolder"),
    ],
)
def test_a_data_set_that_cannot_be_staged_is_refused(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare.main([*arguments, "--stage", "DATA", "--output", "OUTPUT"]) == 1
    assert problem in capsys.readouterr().err


def test_an_unknown_data_set_is_reported_with_the_nearest_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert prepare.main(["--dataset", "fashion_mnist", "--output", str(tmp_path)]) == 1
    assert "Did you mean fashion-mnist?" in capsys.readouterr().err
