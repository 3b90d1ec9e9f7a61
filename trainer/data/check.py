"""Tries every picture of a folder or of its shards before anybody trains on them."""

from pathlib import Path

import numpy as np

from everstep.errors import EverstepError
from everstep.progress import Progress, Step
from trainer.data.dataset import PARTS
from trainer.data.pictures import Pictures, open_pictures

NAMED_FILES = 20  # in an error
NOTE_EVERY = 2000  # pictures
_SIZE = 8  # pixels: whether a picture can be read, its size does not decide


def check(folder: Path, progress: Progress) -> str:
    """Read every picture of both parts; what there is, in words.

    Raises:
        EverstepError: some cannot be read; names them.
    """
    parts = [open_pictures(folder, part, _SIZE) for part in PARTS]
    bad: list[str] = []
    with progress.step(f"Trying every picture in {folder}") as step:
        for pictures in parts:
            bad += _try_all(pictures, step)
    if bad:
        more = f"\n  and {len(bad) - NAMED_FILES} more" if len(bad) > NAMED_FILES else ""
        raise EverstepError(
            f"{len(bad)} file(s) are not images that can be read:\n  "
            + "\n  ".join(bad[:NAMED_FILES])
            + more,
            "Replace or remove them.",
        )
    return "\n".join(f"{pictures.part}: {pictures.identity}" for pictures in parts)


def _try_all(pictures: Pictures, step: Step) -> list[str]:
    bad = []
    into = np.empty((_SIZE, _SIZE, 3), np.uint8)
    for sample in range(len(pictures)):
        try:
            pictures.render(sample, None, into)
        except EverstepError as error:
            bad.append(error.what)
        if (sample + 1) % NOTE_EVERY == 0:
            step.note(f"{pictures.part}: {sample + 1} of {len(pictures)}")
    return bad
