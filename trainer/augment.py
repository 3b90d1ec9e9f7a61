"""Augmentation as a pure function of (seed, epoch, sample id).

A sample that is trained again after a worker was lost is the very same image, whichever worker does
it.
"""

import numpy as np
import numpy.typing as npt

from everstep.elastic.sampler import Ids, hashed

Images = npt.NDArray[np.uint8]


def crop_and_flip(images: Images, seed: int, epoch: int, ids: Ids, padding: int) -> Images:
    """Shift each image by up to `padding` pixels each way, and mirror half of them.

    Args:
        images: shape (n, height, width, channels).
        seed: of the run.
        epoch: which pass over the set this is.
        ids: of the samples, shape (n,).
        padding: pixels of black on each side before the crop; 0 shifts nothing.

    Returns:
        The same shape, a new array.
    """
    count, height, width, _ = images.shape
    words = hashed(seed ^ 0xA06, epoch, ids)
    span = np.uint64(2 * padding + 1)
    down, right = (words % span).astype(np.int64), (words // span % span).astype(np.int64)
    mirrored = (words >> np.uint64(40)) % np.uint64(2) == 1
    padded = np.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows = down[:, None] + np.arange(height)  # (n, height)
    columns = np.arange(width)
    columns = right[:, None] + np.where(mirrored[:, None], columns[::-1], columns)  # (n, width)
    return np.asarray(
        padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    )
