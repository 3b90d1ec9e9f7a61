"""Encoded images of any size as a data set: each is decoded and cropped on request.

An `ImageSource` provides the encoded bytes, from a folder of files or from shards. Decoding is the same for
both and in every process: `ImageDataset.render` is a pure function of the bytes, the size and one random
word.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from everstep.elastic.data_order.sampler import Ids
from everstep.errors import EverstepError
from trainer.augment import Crop, Images, center_crop, random_crop, random_words
from trainer.data import jpeg
from trainer.data.cache.files import CachedFiles
from trainer.data.dataset import BatchRequest, Labels
from trainer.data.folder import open_folder
from trainer.data.manifest import MANIFEST_FILE, damage_error, read_manifest
from trainer.data.shards import KIND, open_shards

# Mean and standard deviation of ImageNet's pixels, assumed for all data sets; red, green, blue.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

MAX_SMOOTHED_FACTOR = 2.6  # largest reduction that three filter weights can smooth


class ImageSource(Protocol):
    """Encoded images and their labels, by sample id."""

    labels: Labels
    classes: Sequence[str]
    identity: str

    def read(self, sample: int) -> jpeg.Encoded:
        """Return the bytes of one image.

        Raises:
            OSError: the bytes cannot be read.
            ValueError: there are no bytes, or they have changed.
            EverstepError: the object store has damaged bytes or none, denies access, or does not respond.
        """

    def prefetch(self, samples: Sequence[int]) -> None:
        """Prepare to read these images next, in order."""

    def name(self, sample: int) -> str:
        """Return the location of an image, for messages."""


class ImageDataset:
    """A data set of encoded images, decoded in the calling process."""

    mean: tuple[float, ...] = MEAN
    deviation: tuple[float, ...] = DEVIATION

    def __init__(
        self, source: ImageSource, folder: Path, split: str, size: int, store: str = ""
    ) -> None:
        self._source, self.folder, self.split, self.size = source, folder, split, size
        self.store = store
        self.class_count = len(source.classes)
        self.identity = source.identity
        jpeg.opencv()  # report a missing module now, not at the first step

    def __len__(self) -> int:
        return len(self._source.labels)

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """Return a random crop of each image, scaled to the size, half of them mirrored."""
        images = self._allocate(len(ids))
        self.prefetch_samples(ids.tolist())
        for position, (sample, random_word) in enumerate(
            zip(ids, random_words(seed, epoch, ids), strict=True)
        ):
            self.render(int(sample), int(random_word), images[position])
        return images, self.labels(ids)

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """Return the center crop of each image, scaled to the size."""
        images = self._allocate(len(ids))
        self.prefetch_samples(ids.tolist())
        for position, sample in enumerate(ids):
            self.render(int(sample), None, images[position])
        return images, self.labels(ids)

    def prefetch(self, requests: Sequence[BatchRequest]) -> None:
        """Do nothing: this process decodes on request."""

    def prefetch_samples(self, samples: Sequence[int]) -> None:
        """Prepare to render these images next, in order."""
        self._source.prefetch(samples)

    def labels(self, ids: Ids) -> Labels:
        """Return the labels of these samples, in the shape of `ids`."""
        return self._source.labels[ids]

    def name(self, sample: int) -> str:
        """Return the location of an image, for messages."""
        return self._source.name(sample)

    def render(self, sample: int, random_word: int | None, output: Images) -> None:
        """Write one image's random or center crop to `output`, shape (size, size, 3).

        Raises:
            EverstepError: the image cannot be read; the message names the file.
        """
        try:
            render(self._source.read(sample), random_word, output)
        except (OSError, ValueError) as error:
            raise EverstepError(
                f"{self._source.name(sample)} cannot be read as an image: {error}",
                "Replace or remove the file; `python3 -m trainer.prepare --dataset imagefolder "
                f"--output {self.folder}` finds all such files.",
            ) from error

    def _allocate(self, count: int) -> Images:
        return np.empty((count, self.size, self.size, 3), np.uint8)


def open_images(folder: Path, split: str, size: int, store: str = "") -> ImageDataset:
    """Open the images in a folder: shards if it has a manifest, files otherwise.

    Args:
        folder: the folder.
        split: `train` or `test`.
        size: side of an image, pixels.
        store: address of the shards that the folder does not have yet; empty if it has all of them.

    Raises:
        EverstepError: the folder has no images, or damaged ones; the message contains the fix.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        return ImageDataset(open_folder(folder, split), folder, split, size)
    if not {"kind", "dataset"} & manifest.keys():
        raise EverstepError(
            f"{folder / MANIFEST_FILE} is not a manifest of prepared data",
            "Rename it, if the folder contains your own images: prepared data have a file of this name.",
        )
    if manifest.get("kind") != KIND:
        raise damage_error(folder, f"it contains {manifest.get('dataset')!r}, not image shards")
    cached_files = CachedFiles(folder, manifest["parts"][split]["files"], store) if store else None
    source = open_shards(folder, manifest, split, cached_files)
    return ImageDataset(source, folder, split, size, store)


def render(data: jpeg.Encoded, random_word: int | None, output: Images) -> None:
    """Decode, crop, scale and mirror one image.

    Args:
        data: the encoded image.
        random_word: word that determines crop and mirror; None for the center, not mirrored.
        output: output of shape (size, size, 3), RGB.

    Raises:
        ValueError: the bytes are not a valid image.
    """
    size = output.shape[0]
    if jpeg.is_jpeg(data):
        width, height = jpeg.frame_size(data)
        crop = _crop(width, height, random_word)
        reduction = jpeg.reduction_for(crop.width, crop.height, size)
        pixels = jpeg.decode(data, reduction)
    else:  # other formats, such as PNG, cannot be reduced while they are decoded
        pixels, reduction = jpeg.decode(data), 1
        crop = _crop(pixels.shape[1], pixels.shape[0], random_word)
    crop = crop.reduce(reduction)
    rows = slice(crop.top, crop.top + crop.height)
    columns = slice(crop.left, crop.left + crop.width)
    scale(pixels[rows, columns], output, mirrored=crop.mirrored)


def scale(pixels: jpeg.Pixels, output: Images, *, mirrored: bool) -> None:
    """Scale BGR pixels to the shape of `output`, RGB."""
    cv2 = jpeg.opencv()
    height, width = output.shape[:2]
    vertical_factor, horizontal_factor = pixels.shape[0] / height, pixels.shape[1] / width
    if max(vertical_factor, horizontal_factor) > MAX_SMOOTHED_FACTOR:
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    elif (vertical_factor, horizontal_factor) != (1, 1):
        if max(vertical_factor, horizontal_factor) > 1:
            taps = _taps(horizontal_factor), _taps(vertical_factor)
            pixels = cv2.sepFilter2D(pixels, -1, *taps, borderType=cv2.BORDER_REPLICATE)
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_LINEAR)
    if mirrored:
        pixels = cv2.flip(pixels, 1)
    cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=output)


def _taps(factor: float) -> npt.NDArray[np.float32]:
    """Return three filter weights that correct linear interpolation for a smaller side.

    PIL filters an image that becomes `factor` times smaller with a triangle of twice that width; its
    variance is factor^2 / 6. Linear interpolation is a triangle of width 2 with variance
    1/6. Variances of filters add up, so the variance of these weights is the difference. The result is as close
    to PIL's as INTER_AREA's, in a quarter of the time.
    """
    variance = max(0.0, (factor**2 - 1) / 6)
    return np.array([variance / 2, 1 - variance, variance / 2], np.float32)


def _crop(width: int, height: int, random_word: int | None) -> Crop:
    return (
        center_crop(width, height)
        if random_word is None
        else random_crop(width, height, random_word)
    )
