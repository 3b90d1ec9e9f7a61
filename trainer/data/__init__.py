"""Training data: prepared arrays, a folder of photographs, or shards made from one.

Each is a `Dataset`; the content of the data folder determines which one is used. No module but `device` imports
torch, so that the reader processes start in a fraction of a second and stay small.
"""

from pathlib import Path

from everstep.catalog.trainer_options import IMAGE_FOLDER
from everstep.spelling import unknown_name
from trainer.data.arrays import ArrayDataset
from trainer.data.cache.cache import Cache, open_cache
from trainer.data.cache.plan import CacheLimits
from trainer.data.dataset import BatchRequest, Dataset, Labels
from trainer.data.images import open_images
from trainer.data.loader import read_ahead

ARRAY_DATASETS = ("fashion-mnist",)
NAMES = (*ARRAY_DATASETS, IMAGE_FOLDER)

__all__ = [
    "IMAGE_FOLDER",
    "NAMES",
    "BatchRequest",
    "Cache",
    "CacheLimits",
    "Dataset",
    "Labels",
    "check_name",
    "load",
    "open_cache",
    "read_ahead",
]


def check_name(name: str) -> str:
    """Return `name` if it is the name of a data set.

    Raises:
        EverstepError: there is no such data set; the message has similar names and all valid ones.
    """
    if name in NAMES:
        return name
    raise unknown_name("data set", name, NAMES)


def load(
    name: str, folder: Path, split: str, image_size: int, crop_padding: int = 0, store: str = ""
) -> Dataset:
    """Load the split `train` or `test` of a data set in a folder.

    Args:
        name: name of the data set.
        folder: its folder.
        split: `train` or `test`.
        image_size: side length of an image folder's images, pixels.
        crop_padding: maximum shift of prepared images, pixels.
        store: address of the shards that the folder does not have yet; empty if it has all of them.

    Raises:
        EverstepError: there is no such data set, or its folder is missing, empty or damaged.
    """
    if check_name(name) == IMAGE_FOLDER:
        return open_images(folder, split, image_size, store)
    return ArrayDataset(name, folder, split, crop_padding)
