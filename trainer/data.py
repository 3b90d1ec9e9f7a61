"""The data a run trains on: prepared arrays, or a folder of images.

Both give a `Dataset`: uint8 images (n, height, width, channels) by sample id. Prepared arrays are
memory-mapped, so that a restarted worker reads nothing that it does not train on.
"""

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from everstep.elastic.sampler import Ids, hashed
from everstep.errors import EverstepError
from trainer.augment import Images, crop_and_flip

PREPARED = ("fashion-mnist",)
IMAGE_FOLDER = "imagefolder"
NAMES = (*PREPARED, IMAGE_FOLDER)
MANIFEST_FILE = "manifest.json"
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

Labels = npt.NDArray[np.int64]


class Dataset(Protocol):
    """One part (train or test) of a data set."""

    classes: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    identity: str  # changes when the data changes

    def __len__(self) -> int:
        """Samples."""

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """Augmented images and their labels; a pure function of its arguments."""

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """Images as they are and their labels."""


def check_name(name: str) -> str:
    """The name, if it is one of ours; otherwise an error that names the nearest."""
    if name in NAMES:
        return name
    near = difflib.get_close_matches(name, NAMES, n=2, cutoff=0.3)
    raise EverstepError(
        f"there is no data set {name!r}",
        f"Nearest: {', '.join(near)}." if near else f"Choose one of {', '.join(NAMES)}.",
    )


def load(name: str, folder: Path, part: str, image_size: int, crop_padding: int = 0) -> Dataset:
    """The part `train` or `test` of a data set in a folder.

    Raises:
        EverstepError: the folder is missing, empty or damaged; says what to run.
    """
    if check_name(name) == IMAGE_FOLDER:
        return FolderDataset(folder / part, image_size)
    return ArrayDataset(name, folder, part, crop_padding)


class ArrayDataset:
    """Arrays written by `trainer.prepare`."""

    def __init__(self, name: str, folder: Path, part: str, crop_padding: int = 0) -> None:
        self._padding = crop_padding
        manifest = _manifest(name, folder)
        self.classes = int(manifest["classes"])
        self.mean, self.deviation = tuple(manifest["mean"]), tuple(manifest["deviation"])
        self.identity = str(manifest["files"][f"{part}-images.npy"]["sha256"])[:16]
        self._images = _mapped(folder / f"{part}-images.npy")
        self._labels = _mapped(folder / f"{part}-labels.npy")
        if len(self._images) != len(self._labels):
            raise _damaged(
                folder, f"{len(self._images)} {part} images but {len(self._labels)} labels"
            )

    def __len__(self) -> int:
        return len(self._images)

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """Augmented images and their labels."""
        return crop_and_flip(self._images[ids], seed, epoch, ids, self._padding), self._labels[
            ids
        ].astype(np.int64)

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """Images as they are and their labels."""
        return np.asarray(self._images[ids]), self._labels[ids].astype(np.int64)


@dataclass(frozen=True)
class _Sample:
    path: Path
    label: int


class FolderDataset:
    """A folder with one folder of images for each class, as torchvision's ImageFolder reads it."""

    def __init__(self, folder: Path, image_size: int) -> None:
        self.mean: tuple[float, ...] = (0.485, 0.456, 0.406)
        self.deviation: tuple[float, ...] = (0.229, 0.224, 0.225)
        self._size = image_size
        self._samples, names = list_images(folder)
        self.classes = len(names)
        self.identity = f"{len(self._samples)}x{self.classes}"

    def __len__(self) -> int:
        return len(self._samples)

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """A random crop of 30 to 100 % of each image, scaled to the size, half of them mirrored."""
        words = hashed(seed ^ 0xF01D, epoch, ids)
        images = [
            self._crop(int(sample), int(word)) for sample, word in zip(ids, words, strict=True)
        ]
        return np.stack(images), self._labels(ids)

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """The middle of each image, scaled to the size."""
        return np.stack([self._middle(int(sample)) for sample in ids]), self._labels(ids)

    def _labels(self, ids: Ids) -> Labels:
        return np.array([self._samples[int(sample)].label for sample in ids], np.int64)

    def _crop(self, sample: int, word: int) -> Images:
        image = self._open(sample)
        parts = [(word >> shift & 0xFFFF) / 0x10000 for shift in (0, 16, 32)]
        side = int(min(image.size) * (0.3 + 0.7 * parts[0]) ** 0.5)
        left, top = (
            int((extent - side) * part) for extent, part in zip(image.size, parts[1:], strict=True)
        )
        image = image.resize((self._size, self._size), box=(left, top, left + side, top + side))
        pixels = np.asarray(image)
        return pixels[:, ::-1] if word >> 63 else pixels

    def _middle(self, sample: int) -> Images:
        image = self._open(sample)
        side = min(image.size) * 7 // 8
        left, top = ((extent - side) // 2 for extent in image.size)
        return np.asarray(
            image.resize((self._size, self._size), box=(left, top, left + side, top + side))
        )

    def _open(self, sample: int):  # type: ignore[no-untyped-def] # noqa: ANN202 - PIL is imported late
        from PIL import Image

        path = self._samples[sample].path
        try:
            with Image.open(path) as image:
                return image.convert("RGB")
        except Exception as error:
            raise EverstepError(
                f"{path} is not an image that can be read: {error}",
                "Replace or remove the file; `python3 -m trainer.prepare --dataset imagefolder` finds all.",
            ) from error


def list_images(folder: Path) -> tuple[list[_Sample], list[str]]:
    """Every image of a folder in a fixed order, and the names of its classes.

    Raises:
        EverstepError: there is no such folder, or no image in it.
    """
    names = (
        sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
        if folder.is_dir()
        else []
    )
    samples = [
        _Sample(path, label)
        for label, name in enumerate(names)
        for path in sorted((folder / name).rglob("*"))
        if path.suffix.lower() in SUFFIXES
    ]
    if not samples:
        what = "has no image in a folder per class" if folder.is_dir() else "does not exist"
        raise EverstepError(
            f"the data folder {folder} {what}",
            f"Put images under {folder}/<class>/, for instance {folder}/cat/1.jpg.",
        )
    return samples, names


class Prepare:
    """Turns uint8 images into what a model takes, on the model's own device.

    Images have 1 or 3 channels; grey ones are repeated, since every model here takes three.
    """

    def __init__(self, dataset: Dataset, device: torch.device, layout: torch.memory_format) -> None:
        self._device, self._layout = device, layout
        self._mean = torch.tensor(dataset.mean, device=device).view(1, -1, 1, 1) * 255
        self._scale = 1 / (torch.tensor(dataset.deviation, device=device).view(1, -1, 1, 1) * 255)

    def __call__(self, images: Images) -> torch.Tensor:
        """Shape (n, height, width, channels) uint8 to (n, 3, height, width) float."""
        pixels = torch.from_numpy(np.ascontiguousarray(images)).to(self._device, non_blocking=True)
        scaled = (pixels.permute(0, 3, 1, 2).float() - self._mean) * self._scale
        return scaled.expand(-1, 3, -1, -1).contiguous(memory_format=self._layout)


def _manifest(name: str, folder: Path) -> dict:  # type: ignore[type-arg] # JSON
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text())
    except FileNotFoundError as error:
        raise EverstepError(
            f"no prepared data in {folder}: {MANIFEST_FILE} is missing",
            f"Run `python3 -m trainer.prepare --dataset {name} --output {folder}`.",
        ) from error
    except ValueError as error:
        raise _damaged(folder, f"{MANIFEST_FILE} is not JSON: {error}") from error
    if manifest.get("dataset") != name:
        raise _damaged(folder, f"it holds {manifest.get('dataset')!r}, not {name!r}")
    return dict(manifest)


def _mapped(path: Path) -> Images:
    try:
        return np.load(path, mmap_mode="r")  # type: ignore[no-any-return] # numpy's stubs say Any
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path.parent, f"{path.name} cannot be read: {error}") from error


def _damaged(folder: Path, what: str) -> EverstepError:
    return EverstepError(
        f"the prepared data in {folder} is damaged: {what}",
        "Remove the folder and run `python3 -m trainer.prepare` again.",
    )
