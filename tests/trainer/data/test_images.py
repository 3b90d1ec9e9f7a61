"""Photographs as model input: crops, decoding at a reduced size, damage."""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists, permutations
from PIL import Image

from everstep.errors import EverstepError
from tests.effort import examples
from tests.trainer.data.photographs import smooth_image, write_photographs
from trainer import data
from trainer.augment import center_crop, random_crop
from trainer.data import jpeg
from trainer.data.images import render


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_photographs(tmp_path_factory.mktemp("photographs"))


def encode(pixels: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=97, subsampling=0)
    return np.frombuffer(file.getvalue(), np.uint8)


@settings(max_examples=examples(25))  # 12 images each
@given(
    order=permutations(range(6)),
    cuts=lists(integers(0, 6), max_size=3),
    seed=integers(0, 2**31),
    epoch=integers(0, 100),
)
def test_an_image_does_not_depend_on_the_worker_or_batch(
    folder: Path, order: list[int], cuts: list[int], seed: int, epoch: int
) -> None:
    train = data.load("imagefolder", folder, "train", 16)
    whole_batch, _ = train.train_batch(np.arange(6), seed, epoch)

    for ids in np.split(np.array(order), sorted(cuts)):
        images, labels = train.train_batch(ids, seed, epoch)
        assert np.array_equal(images, whole_batch[ids]), "the training would depend on the group"
        assert list(labels) == [int(sample) // 3 for sample in ids]


def test_a_test_folder_without_classes_does_not_hide_the_validation_images(tmp_path: Path) -> None:
    """ImageNet's test images have no labels."""
    folder = write_photographs(tmp_path, test="val")
    (folder / "test").mkdir()
    Image.fromarray(smooth_image(0, 20, 20)).save(folder / "test" / "1.jpg")

    assert len(data.load("imagefolder", folder, "test", 16)) == 6


def test_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_photographs(tmp_path)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("trainer.data.folder.os.scandir", refuse)

    with pytest.raises(EverstepError, match="/test cannot be read: Permission denied"):
        data.load("imagefolder", folder, "test", 16)


def test_a_manifest_of_another_program_is_named_and_no_data_are_called_damaged(
    tmp_path: Path,
) -> None:
    folder = write_photographs(tmp_path)
    (folder / "manifest.json").write_text('{"name": "camera"}')

    with pytest.raises(EverstepError, match="is not a manifest of prepared data") as error:
        data.load("imagefolder", folder, "train", 16)
    assert error.value.fix.startswith("Rename it")


def test_another_seed_or_epoch_gives_another_image(folder: Path) -> None:
    train = data.load("imagefolder", folder, "train", 16)
    image, other_epoch, other_seed = (
        train.train_batch(np.arange(6), *seed_and_epoch)[0]
        for seed_and_epoch in ((1, 0), (1, 1), (2, 0))
    )

    assert not np.array_equal(image, other_epoch)
    assert not np.array_equal(image, other_seed)


@pytest.mark.parametrize("size", [32, 64, 100])  # reductions from 8 to 1, depending on the crop
@pytest.mark.parametrize("random_word", [None, 3, 2**63 + 5])
def test_a_crop_matches_pil_even_if_decoded_at_a_reduced_size(
    size: int, random_word: int | None
) -> None:
    pixels = smooth_image(4, 500, 375)
    crop = center_crop(500, 375) if random_word is None else random_crop(500, 375, random_word)
    rendered_image = np.empty((size, size, 3), np.uint8)

    render(encode(pixels), random_word, rendered_image)

    reduction = jpeg.reduction_for(crop.width, crop.height, size)
    reduced_crop = crop.reduce(reduction)
    right, bottom = reduced_crop.left + reduced_crop.width, reduced_crop.top + reduced_crop.height
    box = (
        reduction * reduced_crop.left,
        reduction * reduced_crop.top,
        reduction * right,
        reduction * bottom,
    )
    expected = np.asarray(
        Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR, box=box)
    )
    if crop.mirrored:
        expected = expected[:, ::-1]
    assert np.abs(rendered_image.astype(int) - expected).mean() < 3, "a shift by one pixel gives 5"


@given(side=integers(8, 5000), size=integers(8, 512))
def test_an_image_is_never_decoded_smaller_than_the_output(side: int, size: int) -> None:
    reduction = jpeg.reduction_for(side, side + 3, size)

    assert reduction == 1 or side // reduction >= size
    assert reduction == 8 or side < 2 * reduction * size, (
        "a larger reduction would have been possible"
    )


@given(width=integers(1, 60), height=integers(1, 60))
def test_the_size_is_read_from_the_header(width: int, height: int) -> None:
    assert jpeg.frame_size(encode(np.zeros((height, width, 3), np.uint8))) == (width, height)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda content: content[: len(content) // 2], "truncated"),
        (lambda content: b"GIF89a" + content, "not a JPEG"),
        (lambda content: content[:2] + b"\0" + content[3:], "header is damaged"),
        (lambda content: content[:2], "no frame header"),
    ],
)
def test_an_invalid_jpeg_is_refused_with_the_reason(
    damage: Callable[[bytes], bytes], reason: str
) -> None:
    valid_jpeg = encode(smooth_image(1, 40, 30)).tobytes()

    with pytest.raises(ValueError, match=reason):
        jpeg.frame_size(np.frombuffer(damage(valid_jpeg), np.uint8))


def test_a_jpeg_may_be_followed_by_other_data() -> None:
    photograph = encode(smooth_image(1, 40, 30)).tobytes()
    video = bytes(10_000)  # a motion photo of a phone

    assert jpeg.frame_size(np.frombuffer(photograph + video, np.uint8)) == (40, 30)


def test_the_end_of_a_thumbnail_is_not_the_end_of_the_photograph() -> None:
    thumbnail = encode(smooth_image(2, 8, 8)).tobytes()
    file = io.BytesIO()
    Image.fromarray(smooth_image(1, 40, 30)).save(file, "jpeg", exif=b"Exif\0\0" + thumbnail)
    truncated = file.getvalue()[:-100]

    with pytest.raises(ValueError, match="truncated"):
        jpeg.frame_size(np.frombuffer(truncated, np.uint8))


def test_the_orientation_tag_is_ignored() -> None:
    tags = Image.Exif()
    tags[0x0112] = 6  # rotation by 90 degrees
    file = io.BytesIO()
    Image.fromarray(smooth_image(2, 60, 40)).save(file, "jpeg", exif=tags)

    pixels = jpeg.decode(np.frombuffer(file.getvalue(), np.uint8))

    assert pixels.shape == (40, 60, 3), "torchvision ignores the tag too"


def test_a_gray_photograph_has_three_channels() -> None:
    file = io.BytesIO()
    Image.fromarray(np.full((40, 40), 90, np.uint8)).save(file, "jpeg")
    output = np.empty((16, 16, 3), np.uint8)

    render(np.frombuffer(file.getvalue(), np.uint8), None, output)

    assert np.all(np.abs(output.astype(int) - 90) < 3)


def test_without_opencv_the_error_names_the_package(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    jpeg.opencv.cache_clear()
    try:
        with pytest.raises(EverstepError, match="needs OpenCV to read photographs") as error:
            data.load("imagefolder", folder, "train", 16)
    finally:
        jpeg.opencv.cache_clear()

    assert "opencv-python-headless" in error.value.fix
