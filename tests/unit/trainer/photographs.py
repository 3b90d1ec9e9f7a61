"""A folder of small photographs, as the tests of the data path need it."""

from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("cat", "dog")


def smooth(seed: int, width: int, height: int) -> np.ndarray:
    """A picture without hard edges, so that two ways of scaling it may be compared."""
    numbers = np.random.default_rng(seed)
    rows, columns = np.linspace(0, 3, height)[:, None], np.linspace(0, 4, width)[None, :]
    waves = [np.sin(rows * a + columns * b + c) for a, b, c in numbers.uniform(0.5, 3, (3, 3))]
    return (127 + 120 * np.stack(waves, axis=-1)).astype(np.uint8)


def make(
    folder: Path, each: int = 3, width: int = 90, height: int = 70, test: str = "test"
) -> Path:
    """So many JPEGs for each class of both parts."""
    for part in ("train", test):
        for label, name in enumerate(CLASSES):
            (folder / part / name).mkdir(parents=True)
            for number in range(each):
                picture = Image.fromarray(smooth(1000 * label + number, width, height))
                picture.save(folder / part / name / f"{number}.jpg", quality=95)
    return folder
