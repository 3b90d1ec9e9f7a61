"""Augmentation as a pure function of (seed, epoch, sample id).

A sample that is trained again after the loss of a worker is the same image on any worker and in any
reader process.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from everstep.elastic.data_order.sampler import Ids, hash_ids

Images = npt.NDArray[np.uint8]

# The ranges of torchvision's RandomResizedCrop, the usual recipe for ImageNet.
CROP_AREA = (0.08, 1.0)  # share of the image's area
CROP_RATIO = (3 / 4, 4 / 3)  # width to height
_LOG_RATIO = (math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1]))
CROP_TRIES = 10

CENTER_SHARE = 7 / 8  # share of the short side that the evaluation crop covers: 224 of 256 pixels


@dataclass(frozen=True)
class Crop:
    """A rectangle of an image in pixels, and whether it is mirrored."""

    left: int
    top: int
    width: int
    height: int
    mirrored: bool = False

    def reduce(self, factor: int) -> "Crop":
        """Return the crop of the reduced image, with edges at the nearest pixels."""
        left, top = round(self.left / factor), round(self.top / factor)
        right = round((self.left + self.width) / factor)
        bottom = round((self.top + self.height) / factor)
        return Crop(left, top, right - left, bottom - top, self.mirrored)


def crop_and_flip(images: Images, seed: int, epoch: int, ids: Ids, padding: int) -> Images:
    """Shift each image by up to `padding` pixels in each direction, and mirror half of them.

    Args:
        images: shape (n, height, width, channels).
        seed: seed of the run.
        epoch: number of the epoch.
        ids: ids of the samples, shape (n,).
        padding: black pixels on each side before the crop; 0 for no shift.

    Returns:
        New array of the same shape.
    """
    count, height, width, _ = images.shape
    words = hash_ids(seed ^ 0xA06, epoch, ids)
    span = np.uint64(2 * padding + 1)
    down, right = (words % span).astype(np.int64), (words // span % span).astype(np.int64)
    mirrored = (words >> np.uint64(40)) % np.uint64(2) == 1
    padded = np.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows = down[:, None] + np.arange(height)  # (n, height)
    columns = np.arange(width)
    columns = right[:, None] + np.where(mirrored[:, None], columns[::-1], columns)  # (n, width)
    return np.asarray(
        padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    )


def random_words(seed: int, epoch: int, ids: Ids) -> npt.NDArray[np.uint64]:
    """Return one random word for each sample, in the shape of `ids`, for `random_crop`."""
    return hash_ids(seed ^ 0xF01D, epoch, ids)


def random_crop(width: int, height: int, random_word: int) -> Crop:
    """Return the training crop: torchvision's RandomResizedCrop, then a horizontal flip with probability 1/2.

    Area and aspect ratio are drawn until they fit, at most ten times. After that, the largest center crop
    with an allowed ratio is returned. A pure function of the arguments, without generator state.
    """
    fractions = _fractions(random_word)
    mirrored = next(fractions) < 0.5
    for _ in range(CROP_TRIES):
        area = width * height * _interpolate(*CROP_AREA, next(fractions))
        ratio = math.exp(_interpolate(*_LOG_RATIO, next(fractions)))
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left, top = (
                int(next(fractions) * (width - crop_width + 1)),
                int(next(fractions) * (height - crop_height + 1)),
            )
            return Crop(left, top, crop_width, crop_height, mirrored)
    min_ratio, max_ratio = CROP_RATIO
    crop_width = min(width, max(1, round(height * max_ratio)))
    crop_height = min(height, max(1, round(width / min_ratio)))
    return Crop(
        (width - crop_width) // 2, (height - crop_height) // 2, crop_width, crop_height, mirrored
    )


def center_crop(width: int, height: int) -> Crop:
    """Return the evaluation crop: the center square, as after Resize(256) and CenterCrop(224)."""
    side = max(1, round(min(width, height) * CENTER_SHARE))
    return Crop((width - side) // 2, (height - side) // 2, side, side)


def _interpolate(low: float, high: float, fraction: float) -> float:
    return low + (high - low) * fraction


def _fractions(word: int) -> Iterator[float]:
    """Yield numbers in [0, 1) with 53 bits, from splitmix64 seeded with a word.

    Python integers are faster than numpy here, because an image needs only five numbers.
    """
    for number in itertools.count(1):
        state = (word + number * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        state = (state ^ state >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        yield ((state ^ state >> 31) >> 11) * 2.0**-53
