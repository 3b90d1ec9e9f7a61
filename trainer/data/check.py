"""Check of every image of a folder, or of its shards, before training."""

from pathlib import Path

import numpy as np

from everstep.errors import EverstepError
from everstep.progress import Progress, Step
from trainer.data.dataset import SPLITS
from trainer.data.images import ImageDataset, open_images
from trainer.data.named_files import named_files

NOTE_EVERY_IMAGES = 2000
_SIZE = 8  # pixels: any size shows whether an image can be read


def check(folder: Path, progress: Progress) -> str:
    """Read every image of both splits; return a description of the content.

    Raises:
        EverstepError: a split has no images, or some cannot be read; the message names the first of them.
    """
    splits = [open_images(folder, split, _SIZE) for split in SPLITS]
    invalid: list[str] = []
    with progress.step(f"Checking every image in {folder}") as step:
        for dataset in splits:
            invalid += _check_all(dataset, step)
    if invalid:
        raise EverstepError(
            f"{len(invalid)} file(s) are not images that can be read:{named_files(invalid)}",
            "Replace or remove them.",
        )
    return "\n".join(f"{dataset.split}: {dataset.identity}" for dataset in splits)


def _check_all(dataset: ImageDataset, step: Step) -> list[str]:
    invalid = []
    pixels = np.empty((_SIZE, _SIZE, 3), np.uint8)
    for sample in range(len(dataset)):
        try:
            dataset.render(sample, None, pixels)
        except EverstepError as error:
            invalid.append(error.problem)
        if (sample + 1) % NOTE_EVERY_IMAGES == 0:
            step.note(f"{dataset.split}: {sample + 1} of {len(dataset)}")
    return invalid
