"""The data a run trains on: prepared arrays, a folder of photographs, or shards made of one.

Each gives a `Dataset`. Which of them it is, the data folder itself says. Nothing here imports torch:
the processes that read ahead start in a fraction of a second and stay small.
"""

import difflib
from pathlib import Path

from everstep.errors import EverstepError
from trainer.data.arrays import ArrayDataset
from trainer.data.dataset import Asked, Dataset, Labels
from trainer.data.loader import read_ahead
from trainer.data.pictures import open_pictures

PREPARED = ("fashion-mnist",)
IMAGE_FOLDER = "imagefolder"
NAMES = (*PREPARED, IMAGE_FOLDER)

__all__ = [
    "IMAGE_FOLDER",
    "NAMES",
    "Asked",
    "Dataset",
    "Labels",
    "check_name",
    "load",
    "read_ahead",
]


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
        return open_pictures(folder, part, image_size)
    return ArrayDataset(name, folder, part, crop_padding)
