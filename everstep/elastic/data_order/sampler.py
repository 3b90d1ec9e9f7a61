"""The samples of each step, for any number of workers.

The order of an epoch is a pure function of (seed, epoch), a step takes the next `global_batch`
samples of it, and the workers share each step's samples between them. Nothing depends on the current
or past number of workers, so every sample is used exactly once per epoch even if workers join
and leave. The last, smaller batch counts, too.

Why not `torch.utils.data.DistributedSampler`: it pads or truncates each epoch to a multiple of the world
size, and it cannot continue in the middle of an epoch. Why not numpy's permutation: its algorithm may
change with numpy's version, and workers of two image versions must agree.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class SampleOrder:
    """The sample order of a whole training run.

    Attributes:
        samples: size of the training set.
        global_batch: samples in one step, over all workers.
        epochs: passes over the set.
        seed: seed of the order.
    """

    samples: int
    global_batch: int
    epochs: int
    seed: int

    def __post_init__(self) -> None:
        for name in ("samples", "global_batch", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one epoch, including the last, perhaps smaller, step."""
        return -(-self.samples // self.global_batch)

    @property
    def total_steps(self) -> int:
        """Steps in the whole run."""
        return self.steps_per_epoch * self.epochs

    def epoch_of(self, step: int) -> int:
        """Return the epoch, from 0, of the step that follows `step` completed steps."""
        return step // self.steps_per_epoch

    def ends_epoch(self, step: int) -> bool:
        """Return True if an epoch has just been completed after `step` steps."""
        return step > 0 and step % self.steps_per_epoch == 0

    def batch(self, step: int) -> Ids:
        """Return the sample IDs of the step that follows `step` completed steps, shape (<= global_batch,)."""
        first = step % self.steps_per_epoch * self.global_batch
        return self._order(self.epoch_of(step))[first : first + self.global_batch]

    def _order(self, epoch: int) -> Ids:
        return epoch_order(self.seed, epoch, self.samples)


_last_order: tuple[tuple[int, int, int], Ids] | None = None


def epoch_order(seed: int, epoch: int, samples: int) -> Ids:
    """Return the order of an epoch: a permutation of range(samples), shape (samples,).

    Samples are sorted by a hash of (seed, epoch, id), equal hashes by id. The last result is cached.
    """
    global _last_order  # noqa: PLW0603 - one epoch's order is used in every step of it
    key, order = (seed, epoch, samples), _last_order
    if order is None or order[0] != key:
        order = (key, np.argsort(hash_ids(seed, epoch, np.arange(samples)), kind="stable"))
        _last_order = order
    return order[1]  # not from the global variable, which another thread may replace


def hash_ids(seed: int, epoch: int, ids: Ids) -> _Words:
    """Return a 64-bit hash of (seed, epoch, id) for each id, shape as `ids`; equal on every machine."""
    with np.errstate(over="ignore"):
        stream = _mix(_mix(np.array([seed], np.int64).astype(np.uint64)) + np.uint64(epoch))
        return _mix(_mix(ids.astype(np.uint64)) ^ stream)


def _mix(words: _Words) -> _Words:
    """Apply one step of SplitMix64: each flipped input bit changes half of the output bits on average."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def share(samples: int, rank: int, world_size: int) -> slice:
    """Return this worker's share of `samples` consecutive samples; shares differ by one at most.

    With more workers than samples, some shares are empty; their workers add nothing to the step's sums.

    Raises:
        ValueError: the rank is negative, or not below the world size.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank must be in 0..{world_size - 1}, got {rank}")
    return slice(samples * rank // world_size, samples * (rank + 1) // world_size)
