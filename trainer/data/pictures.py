"""Photographs of any size as a data set: each is decoded and cut when it is asked for.

Where their bytes come from, a folder of files or shards, is a `Source`. What becomes of them is the
same for both, and for every process that does it: `Pictures.render` is a pure function of the bytes,
the size and one word of chance.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from everstep.elastic.sampler import Ids
from everstep.errors import EverstepError
from trainer.augment import Crop, Images, chances, middle_crop, random_crop
from trainer.data import jpeg
from trainer.data.dataset import Asked, Labels
from trainer.data.folder import open_folder
from trainer.data.manifest import damaged, read_manifest
from trainer.data.shards import KIND, open_shards

# Of ImageNet, which photographs are taken to resemble; red, green, blue.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

MOST_SMOOTHED = 2.6  # times smaller: three weights cannot blur more


class Source(Protocol):
    """Encoded pictures and their labels, by sample id."""

    labels: Labels
    classes: Sequence[str]
    identity: str

    def read(self, sample: int) -> jpeg.Encoded:
        """The bytes of one picture.

        Raises:
            OSError: they cannot be read.
            ValueError: they are not what they were.
        """

    def name(self, sample: int) -> str:
        """Where that picture lies, for a message."""


class Pictures:
    """A data set of photographs, read by whoever asks."""

    mean: tuple[float, ...] = MEAN
    deviation: tuple[float, ...] = DEVIATION

    def __init__(self, source: Source, folder: Path, part: str, size: int) -> None:
        self._source, self.folder, self.part, self.size = source, folder, part, size
        self.classes = len(source.classes)
        self.identity = source.identity
        jpeg.opencv()  # missing, it is named now and not at the first step

    def __len__(self) -> int:
        return len(self._source.labels)

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """A random part of each picture, scaled to the size, half of them mirrored."""
        images = self._empty(len(ids))
        for place, (sample, chance) in enumerate(zip(ids, chances(seed, epoch, ids), strict=True)):
            self.render(int(sample), int(chance), images[place])
        return images, self.labels(ids)

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """The middle of each picture, scaled to the size."""
        images = self._empty(len(ids))
        for place, sample in enumerate(ids):
            self.render(int(sample), None, images[place])
        return images, self.labels(ids)

    def expect(self, upcoming: Sequence[Asked]) -> None:
        """Nothing: there is only the asking process itself."""

    def labels(self, ids: Ids) -> Labels:
        """Labels of these samples, shape as `ids`."""
        return self._source.labels[ids]

    def name(self, sample: int) -> str:
        """Where a picture lies, for a message."""
        return self._source.name(sample)

    def render(self, sample: int, chance: int | None, into: Images) -> None:
        """Write one picture's image into `into`, shape (size, size, 3): a random part, or the middle.

        Raises:
            EverstepError: the picture cannot be read; names the file.
        """
        try:
            render(self._source.read(sample), chance, into)
        except (OSError, ValueError) as error:
            raise EverstepError(
                f"{self._source.name(sample)} cannot be read as a picture: {error}",
                "Replace or remove the file; `python3 -m trainer.prepare --dataset imagefolder "
                f"--output {self.folder}` finds all such files.",
            ) from error

    def _empty(self, count: int) -> Images:
        return np.empty((count, self.size, self.size, 3), np.uint8)


def open_pictures(folder: Path, part: str, size: int) -> Pictures:
    """The photographs in a folder: shards where its manifest says so, files otherwise.

    Raises:
        EverstepError: there are none, or they are damaged; says what to do.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return Pictures(open_folder(folder, part), folder, part, size)
    if manifest.get("kind") != KIND:
        raise damaged(folder, f"it holds {manifest.get('dataset')!r}, and no shards of photographs")
    return Pictures(open_shards(folder, manifest, part), folder, part, size)


def render(data: jpeg.Encoded, chance: int | None, into: Images) -> None:
    """Decode, cut, scale and mirror one picture.

    Args:
        data: the encoded picture.
        chance: decides the part and the mirror; None: the middle, as it is.
        into: shape (size, size, 3), red first; written to.

    Raises:
        ValueError: the bytes are no picture.
    """
    size = into.shape[0]
    if jpeg.is_jpeg(data):
        width, height = jpeg.frame_size(data)
        crop = _choose(width, height, chance)
        reduction = jpeg.reduction_for(crop.width, crop.height, size)
        pixels = jpeg.decode(data, reduction)
    else:  # PNG and the like cannot be reduced while they are decoded
        pixels, reduction = jpeg.decode(data), 1
        crop = _choose(pixels.shape[1], pixels.shape[0], chance)
    part = crop.reduced(reduction)
    rows, columns = (
        slice(part.top, part.top + part.height),
        slice(part.left, part.left + part.width),
    )
    scale(pixels[rows, columns], into, mirrored=part.mirrored)


def scale(pixels: jpeg.Pixels, into: Images, *, mirrored: bool) -> None:
    """Scale pixels, blue first, to the shape of `into`, red first."""
    cv2 = jpeg.opencv()
    height, width = into.shape[:2]
    down, across = pixels.shape[0] / height, pixels.shape[1] / width
    if max(down, across) > MOST_SMOOTHED:
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    elif (down, across) != (1, 1):
        if max(down, across) > 1:
            taps = _taps(across), _taps(down)
            pixels = cv2.sepFilter2D(pixels, -1, *taps, borderType=cv2.BORDER_REPLICATE)
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)
    if mirrored:
        pixels = cv2.flip(pixels, 1)
    cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=into)


def _taps(factor: float) -> npt.NDArray[np.float32]:
    """Three weights that make up for what linear interpolation leaves out when it makes a side smaller.

    An image that becomes `factor` times smaller should be seen through a triangle of twice that width,
    as PIL does; its variance is factor^2 / 6. Linear interpolation is a triangle of width 2, variance
    1/6. Variances of filters add up, so these weights have the difference. The result is as near to
    PIL's as INTER_AREA's is, in a quarter of the time.
    """
    variance = max(0.0, (factor**2 - 1) / 6)
    return np.array([variance / 2, 1 - variance, variance / 2], np.float32)


def _choose(width: int, height: int, chance: int | None) -> Crop:
    return middle_crop(width, height) if chance is None else random_crop(width, height, chance)
