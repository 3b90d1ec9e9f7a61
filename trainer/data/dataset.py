"""What a training loop asks of a data set, whatever it is stored as."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from everstep.elastic.sampler import Ids
from trainer.augment import Images

Labels = npt.NDArray[np.int64]
PARTS = ("train", "test")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A batch that will be asked for: the arguments of `train_batch`; `test_batch` needs the ids alone."""

    ids: Ids
    seed: int = 0
    epoch: int = 0


class Dataset(Protocol):
    """One part (train or test) of a data set: uint8 images (n, height, width, channels) by sample id."""

    classes: int
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    identity: str  # changes when the data changes; stands in every checkpoint

    def __len__(self) -> int:
        """Samples."""

    def train_batch(self, ids: Ids, seed: int, epoch: int) -> tuple[Images, Labels]:
        """Augmented images and their labels; a pure function of its arguments."""

    def test_batch(self, ids: Ids) -> tuple[Images, Labels]:
        """Images as they are and their labels."""

    def expect(self, upcoming: Sequence[Asked]) -> None:
        """What will be asked for next, in this order: it may be read ahead.

        Only a hint. What was expected before and is not any more, since the group has changed, is
        forgotten; what is asked for unexpectedly is read when it is asked for.
        """
