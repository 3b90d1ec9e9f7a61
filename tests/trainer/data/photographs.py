"""Small photographs for the tests of the data path."""

from pathlib import Path

import numpy as np
from PIL import Image

from trainer.data.images import ImageDataset, open_images

CLASSES = ("cat", "dog")


def smooth_image(seed: int, width: int, height: int) -> np.ndarray:
    """Return an image without hard edges, so that scaling methods can be compared."""
    rng = np.random.default_rng(seed)
    rows, columns = np.linspace(0, 3, height)[:, None], np.linspace(0, 4, width)[None, :]
    waves = [np.sin(rows * a + columns * b + c) for a, b, c in rng.uniform(0.5, 3, (3, 3))]
    return (127 + 120 * np.stack(waves, axis=-1)).astype(np.uint8)


def write_photographs(
    folder: Path, per_class: int = 3, width: int = 90, height: int = 70, test: str = "test"
) -> Path:
    """Write `per_class` JPEGs per class into the folder `train` and the evaluation folder, `test`."""
    for split in ("train", test):
        for label, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for number in range(per_class):
                image = Image.fromarray(smooth_image(1000 * label + number, width, height))
                image.save(folder / split / name / f"{number}.jpg", quality=95)
    return folder


def open_splits(folder: Path, size: int) -> tuple[ImageDataset, ImageDataset]:
    """Return the training and the test split of a folder, with images of `size` pixels on each side."""
    return open_images(folder, "train", size), open_images(folder, "test", size)
