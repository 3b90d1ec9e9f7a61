"""Interface between the training loop and a data set."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from everstep.elastic.data_order.sampler import Ids
from trainer.augment import Images

Labels = npt.NDArray[np.int64]
SPLITS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class BatchRequest:
    """An upcoming batch: the arguments of `train_batch`; `test_batch` uses only the ids."""

    ids: Ids
    seed: int = 0
    epoch: int = 0


class Dataset(Protocol):
    """One split (train or test) of a data set: uint8 images (n, height, width, channels) by sample id.

    Attributes:
        class_count: number of classes.
        mean: mean of each channel, for pixels from 0 to 1.
        deviation: standard deviation of each channel, for pixels from 0 to 1.
        identity: text that changes when the data change; part of every checkpoint.
    """

    class_count: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    identity: str

    def __len__(self) -> int:
        """Return the number of samples."""

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """Return augmented images and their labels; a pure function of its arguments."""

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """Return images without augmentation, and their labels."""

    def prefetch(self, requests: Sequence[BatchRequest]) -> None:
        """Read the next batches ahead, in order.

        This is only a hint. Samples that are no longer requested after a change of the group are dropped;
        others are read on request.
        """
