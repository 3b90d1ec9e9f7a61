"""Which program a worker runs: workers of two image versions would not take the same steps.

The version is that of the sources themselves and not a number that somebody has to remember to
raise: two images that were built from the same sources may train together.
"""

import functools
import hashlib
from pathlib import Path

import torch

from everstep import elastic

FOLDERS = (Path(__file__).parent, Path(elastic.__file__).parent)


@functools.cache
def version() -> str:
    """A digest of the trainer's and the elastic library's sources, and torch's own version."""
    return f"{digest(*FOLDERS)} torch {torch.__version__}"


def digest(*folders: Path) -> str:
    """Of every Python file in these folders and theirs, its name included; where they lie does not matter."""
    whole = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            whole.update(f"{folder.name}/{path.relative_to(folder)}\n".encode())
            whole.update(path.read_bytes())
    return whole.hexdigest()[:16]
