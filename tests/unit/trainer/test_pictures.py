import io
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import integers, lists, permutations
from PIL import Image

from everstep.errors import EverstepError
from tests.unit.trainer.photographs import make, smooth
from trainer import data
from trainer.augment import middle_crop, random_crop
from trainer.data import jpeg
from trainer.data.pictures import render


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("photographs"))


def encoded(pixels: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=97, subsampling=0)
    return np.frombuffer(file.getvalue(), np.uint8)


@settings(max_examples=25)  # 25 pictures or so each
@given(
    order=permutations(range(6)),
    cuts=lists(integers(0, 6), max_size=3),
    seed=integers(0, 2**31),
    epoch=integers(0, 100),
)
def test_an_image_is_the_same_whichever_worker_reads_it_and_in_whatever_batch(
    folder, order, cuts, seed, epoch
):
    train = data.load("imagefolder", folder, "train", 16)
    together, _ = train.train_batch(np.arange(6), seed, epoch)

    for ids in np.split(np.array(order), sorted(cuts)):
        images, labels = train.train_batch(ids, seed, epoch)
        assert np.array_equal(images, together[ids]), "another group would train other images"
        assert list(labels) == [int(sample) // 3 for sample in ids]


def test_another_seed_or_epoch_gives_another_image(folder):
    train = data.load("imagefolder", folder, "train", 16)
    one, other_epoch, other_seed = (
        train.train_batch(np.arange(6), *given)[0] for given in ((1, 0), (1, 1), (2, 0))
    )

    assert not np.array_equal(one, other_epoch)
    assert not np.array_equal(one, other_seed)


@pytest.mark.parametrize("size", [32, 64, 100])  # decoded at a quarter, at half and whole
@pytest.mark.parametrize("chance", [None, 3, 2**63 + 5])
def test_a_crop_has_pil_s_pixels_also_where_it_is_decoded_smaller(size, chance):
    pixels = smooth(4, 500, 375)
    crop = middle_crop(500, 375) if chance is None else random_crop(500, 375, chance)
    ours = np.empty((size, size, 3), np.uint8)

    render(encoded(pixels), chance, ours)

    by = jpeg.reduction_for(crop.width, crop.height, size)
    near = crop.reduced(by)
    box = [
        by * edge for edge in (near.left, near.top, near.left + near.width, near.top + near.height)
    ]
    theirs = np.asarray(
        Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR, box=box)
    )
    if crop.mirrored:
        theirs = theirs[:, ::-1]
    assert np.abs(ours.astype(int) - theirs).mean() < 3, "a shift by one pixel gives 5"


@given(side=integers(8, 5000), size=integers(8, 512))
def test_a_picture_is_never_decoded_to_fewer_pixels_than_the_image_has(side, size):
    reduction = jpeg.reduction_for(side, side + 3, size)

    assert reduction == 1 or side // reduction >= size
    assert reduction == 8 or side < 2 * reduction * size, "a coarser decoding would have done"


@given(width=integers(1, 60), height=integers(1, 60))
def test_a_header_tells_the_size(width, height):
    assert jpeg.frame_size(encoded(np.zeros((height, width, 3), np.uint8))) == (width, height)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda b: b[: len(b) // 2], "cut off"),
        (lambda b: b"GIF89a" + b, "not a JPEG"),
        (lambda b: b[:2] + b"\0" + b[3:], "header is damaged"),
        (lambda b: b[:2], "no frame header"),
    ],
)
def test_what_is_no_whole_jpeg_is_told_with_the_reason(damage, said):
    whole = encoded(smooth(1, 40, 30)).tobytes()

    with pytest.raises(ValueError, match=said):
        jpeg.frame_size(np.frombuffer(damage(whole), np.uint8))


def test_a_photograph_is_not_turned_by_its_orientation():
    tags = Image.Exif()
    tags[0x0112] = 6  # a quarter turn
    file = io.BytesIO()
    Image.fromarray(smooth(2, 60, 40)).save(file, "jpeg", exif=tags)

    pixels = jpeg.decode(np.frombuffer(file.getvalue(), np.uint8))

    assert pixels.shape == (40, 60, 3), "torchvision would not turn it either"


def test_a_grey_photograph_has_three_channels():
    file = io.BytesIO()
    Image.fromarray(np.full((40, 40), 90, np.uint8)).save(file, "jpeg")
    into = np.empty((16, 16, 3), np.uint8)

    render(np.frombuffer(file.getvalue(), np.uint8), None, into)

    assert np.all(np.abs(into.astype(int) - 90) < 3)


def test_where_opencv_is_missing_the_error_says_how_it_gets_in(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    jpeg.opencv.cache_clear()
    try:
        with pytest.raises(EverstepError, match="needs OpenCV to read photographs") as error:
            data.load("imagefolder", folder, "train", 16)
    finally:
        jpeg.opencv.cache_clear()

    assert "--build-arg OPENCV=yes" in error.value.remedy
