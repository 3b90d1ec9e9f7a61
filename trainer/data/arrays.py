"""Small images as prepared arrays: Fashion-MNIST.

The arrays are memory-mapped, so that a restarted worker reads only the samples that it trains on.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from everstep.elastic.data_order.sampler import Ids
from everstep.errors import EverstepError
from trainer.augment import Images, crop_and_flip
from trainer.data.dataset import BatchRequest, Labels
from trainer.data.manifest import MANIFEST_FILE, damage_error, read_manifest


class ArrayDataset:
    """Arrays written by `trainer.prepare`.

    Args:
        name: name of the data set.
        folder: folder with the arrays and their manifest.
        split: `train` or `test`.
        crop_padding: pixels that are added on each side before a training image is cropped.

    Raises:
        EverstepError: the data are missing or damaged.
    """

    def __init__(self, name: str, folder: Path, split: str, crop_padding: int = 0) -> None:
        self._padding = crop_padding
        manifest = _manifest(name, folder)
        try:
            self.class_count = int(manifest["classes"])
            self.mean, self.deviation = tuple(manifest["mean"]), tuple(manifest["deviation"])
            self.identity = _identity(manifest["files"], split)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{MANIFEST_FILE} is incomplete: {type(error).__name__}: {error}"
            raise damage_error(folder, reason) from error
        self._images = _map_array(folder / f"{split}-images.npy")
        self._labels = _map_array(folder / f"{split}-labels.npy")
        if len(self._images) != len(self._labels):
            raise damage_error(
                folder, f"{len(self._images)} {split} images but {len(self._labels)} labels"
            )

    def __len__(self) -> int:
        return len(self._images)

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """Return augmented images, uint8 (N, H, W, C), and their labels, int64 (N,)."""
        return crop_and_flip(self._images[ids], seed, epoch, ids, self._padding), self._labels[
            ids
        ].astype(np.int64)

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """Return unchanged images and their labels."""
        return np.asarray(self._images[ids]), self._labels[ids].astype(np.int64)

    def prefetch(self, requests: Sequence[BatchRequest]) -> None:
        """Do nothing: a batch of such images takes a millisecond."""


def _identity(files: Mapping[str, Any], split: str) -> str:
    """Return a digest of the images and labels of a split."""
    digests = [str(files[f"{split}-{kind}.npy"]["sha256"]) for kind in ("images", "labels")]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:16]


def _manifest(name: str, folder: Path) -> dict[str, Any]:
    manifest = read_manifest(folder)
    if manifest is None:
        raise EverstepError(
            f"no prepared data in {folder}: {MANIFEST_FILE} is missing",
            f"Run `python3 -m trainer.prepare --dataset {name} --output {folder}`.",
        )
    if manifest.get("dataset") != name:
        raise damage_error(folder, f"it contains {manifest.get('dataset')!r}, not {name!r}")
    return manifest


def _map_array(path: Path) -> Images:
    try:
        return np.load(path, mmap_mode="r")  # type: ignore[no-any-return] # numpy's stubs say Any
    except (OSError, ValueError, EOFError) as error:
        raise damage_error(path.parent, f"{path.name} cannot be read: {error}") from error
