"""Augmentation, as a function of seed, epoch and sample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import integers

from trainer.augment import center_crop, crop_and_flip, random_crop, random_words

PAD = 2


def images(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 255, (count, 9, 7, 1), dtype=np.uint8)


def test_an_image_depends_only_on_its_seed_epoch_and_id() -> None:
    batch, ids = images(8), np.arange(100, 108)

    whole_batch = crop_and_flip(batch, 1, 2, ids, PAD)
    one_by_one = np.concatenate([crop_and_flip(batch[[i]], 1, 2, ids[[i]], PAD) for i in range(8)])

    assert np.array_equal(whole_batch, one_by_one), "a sample must not depend on the worker"
    assert not np.array_equal(whole_batch, crop_and_flip(batch, 1, 3, ids, PAD))
    assert not np.array_equal(whole_batch, crop_and_flip(batch, 2, 2, ids, PAD))
    assert not np.array_equal(whole_batch, crop_and_flip(batch, 1, 2, ids + 8, PAD))


def test_images_are_only_mirrored_and_shifted_by_every_offset() -> None:
    batch, ids, offsets = images(64), np.arange(64), range(2 * PAD + 1)
    shifts = []

    for image, augmented_image in zip(batch, crop_and_flip(batch, 5, 0, ids, PAD), strict=True):
        padded_image = np.pad(image, ((PAD, PAD), (PAD, PAD), (0, 0)))
        crops = {
            (down, right): padded_image[down : down + 9, right : right + 7]
            for down in offsets
            for right in offsets
        }
        (shift,) = [
            shift
            for shift, crop in crops.items()
            if np.array_equal(augmented_image, crop)
            or np.array_equal(augmented_image, crop[:, ::-1])
        ]
        shifts.append(shift)

    for observed in zip(*shifts, strict=True):
        assert set(observed) == set(offsets)


def test_about_half_of_the_images_are_mirrored() -> None:
    images_with_mark = np.zeros((2000, 9, 9, 1), np.uint8)
    images_with_mark[:, :, 0] = 255  # a mark on the left

    mirrored_fraction = (
        crop_and_flip(images_with_mark, 3, 0, np.arange(2000), 0)[:, :, 5:].any((1, 2, 3)).mean()
    )

    assert 0.45 < mirrored_fraction < 0.55


@given(width=integers(1, 5000), height=integers(1, 5000), random_word=integers(0, 2**64 - 1))
def test_a_random_crop_is_within_the_image_and_depends_only_on_its_arguments(
    width: int, height: int, random_word: int
) -> None:
    crop = random_crop(width, height, random_word)

    assert crop.width > 0
    assert crop.height > 0
    assert 0 <= crop.left <= width - crop.width
    assert 0 <= crop.top <= height - crop.height
    assert crop == random_crop(width, height, random_word)


@given(random_word=integers(0, 2**64 - 1))
def test_a_random_crop_has_the_area_and_aspect_ratio_of_the_standard_recipe(
    random_word: int,
) -> None:
    crop = random_crop(500, 375, random_word)

    area, ratio = crop.width * crop.height / (500 * 375), crop.width / crop.height
    # 8 % to 100 % and 3/4 to 4/3, before the sides are rounded to whole pixels.
    assert 0.078 <= area <= 1
    assert 0.74 <= ratio <= 1.35


def test_the_crops_of_an_epoch_are_centered_on_average_and_half_of_them_are_mirrored() -> None:
    crops = [
        random_crop(500, 375, int(random_word))
        for random_word in random_words(3, 0, np.arange(2000))
    ]

    middles = np.array([(c.left + c.width / 2, c.top + c.height / 2) for c in crops]).mean(0)
    assert np.allclose(middles, (250, 187.5), atol=8)
    assert 0.46 < np.mean([crop.mirrored for crop in crops]) < 0.54
    assert len({(crop.left, crop.top, crop.width) for crop in crops}) > 1900


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(1000, 10, (493, 0, 13, 10)), (10, 1000, (0, 493, 10, 13))],
)
def test_an_image_outside_the_allowed_aspect_ratios_is_cropped_at_the_center(
    width: int, height: int, expected: tuple[int, int, int, int]
) -> None:
    crop = random_crop(width, height, 5)

    assert (crop.left, crop.top, crop.width, crop.height) == expected


@given(width=integers(1, 5000), height=integers(1, 5000))
def test_the_evaluation_crop_is_a_centered_square(width: int, height: int) -> None:
    crop = center_crop(width, height)

    assert crop.width == crop.height <= min(width, height)
    assert abs(2 * crop.left + crop.width - width) <= 1
    assert abs(2 * crop.top + crop.height - height) <= 1


def test_the_evaluation_crop_of_256_pixels_has_224() -> None:
    assert center_crop(256, 300).width == 224, "as after Resize(256) and CenterCrop(224)"
