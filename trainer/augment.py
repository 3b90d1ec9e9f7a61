"""Augmentation as a pure function of (seed, epoch, sample id).

A sample that is trained again after a worker was lost is the very same image, whichever worker does
it, and whichever process of that worker.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from everstep.elastic.sampler import Ids, hashed

Images = npt.NDArray[np.uint8]

# Of torchvision's RandomResizedCrop, the usual recipe for ImageNet.
CROP_AREA = (0.08, 1.0)  # of the picture's
CROP_RATIO = (3 / 4, 4 / 3)  # width to height
_LOG_RATIO = (math.log(CROP_RATIO[0]), math.log(CROP_RATIO[1]))
CROP_TRIES = 10

MIDDLE = 7 / 8  # of the short side is what is evaluated, as 224 pixels of 256


@dataclass(frozen=True)
class Crop:
    """A part of a picture, in its pixels, and whether it is mirrored."""

    left: int
    top: int
    width: int
    height: int
    mirrored: bool = False

    def reduced(self, by: int) -> "Crop":
        """The same part of the picture with both sides divided, its edges at the nearest pixels."""
        left, top = round(self.left / by), round(self.top / by)
        right, bottom = round((self.left + self.width) / by), round((self.top + self.height) / by)
        return Crop(left, top, right - left, bottom - top, self.mirrored)


def crop_and_flip(images: Images, seed: int, epoch: int, ids: Ids, padding: int) -> Images:
    """Shift each image by up to `padding` pixels each way, and mirror half of them.

    Args:
        images: shape (n, height, width, channels).
        seed: of the run.
        epoch: which pass over the set this is.
        ids: of the samples, shape (n,).
        padding: pixels of black on each side before the crop; 0 shifts nothing.

    Returns:
        The same shape, a new array.
    """
    count, height, width, _ = images.shape
    words = hashed(seed ^ 0xA06, epoch, ids)
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


def chances(seed: int, epoch: int, ids: Ids) -> npt.NDArray[np.uint64]:
    """One word for each sample, shape as `ids`: all the chance that `random_crop` needs of it."""
    return hashed(seed ^ 0xF01D, epoch, ids)


def random_crop(width: int, height: int, chance: int) -> Crop:
    """Which part of a picture is trained: torchvision's RandomResizedCrop, then a mirror for half of them.

    Area and shape are drawn anew until they fit, ten times at most; then it is the largest middle part
    whose shape is allowed. Nothing but the arguments decides, so this needs no generator to be kept.
    """
    draw = _fractions(chance)
    mirrored = next(draw) < 0.5
    for _ in range(CROP_TRIES):
        area = width * height * _between(*CROP_AREA, next(draw))
        ratio = math.exp(_between(*_LOG_RATIO, next(draw)))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = (
                int(next(draw) * (width - across + 1)),
                int(next(draw) * (height - down + 1)),
            )
            return Crop(left, top, across, down, mirrored)
    narrowest, widest = CROP_RATIO
    across = min(width, max(1, round(height * widest)))
    down = min(height, max(1, round(width / narrowest)))
    return Crop((width - across) // 2, (height - down) // 2, across, down, mirrored)


def middle_crop(width: int, height: int) -> Crop:
    """Which part is evaluated: the square in the middle, as after Resize(256) and CenterCrop(224)."""
    side = max(1, round(min(width, height) * MIDDLE))
    return Crop((width - side) // 2, (height - side) // 2, side, side)


def _between(low: float, high: float, part: float) -> float:
    return low + (high - low) * part


def _fractions(word: int) -> Iterator[float]:
    """Numbers in [0, 1) with 53 bits, from splitmix64 started at a word.

    One at a time in Python's whole numbers: a picture needs five, which take numpy longer.
    """
    for number in itertools.count(1):
        mixed = (word + number * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
        yield ((mixed ^ mixed >> 31) >> 11) * 2.0**-53
