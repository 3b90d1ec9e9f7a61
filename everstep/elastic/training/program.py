"""The version of a training program: workers of two versions would not take the same steps.

The version is computed from the sources instead of being a number to increment by hand: two images
that were built from the same sources, with the same torch, may train together.
"""

import functools
import hashlib
import sys
from pathlib import Path

import torch

LIBRARY = Path(__file__).parents[1]


@functools.cache
def version(*folders: Path) -> str:
    """Return a digest of the sources in these folders and in the elastic library, and torch's version."""
    return f"{digest(*folders, LIBRARY)} torch {torch.__version__}"


def script_version() -> str:
    """Return the version of the script that Python runs, with the elastic library and torch."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    try:
        script_digest = hashlib.sha256(Path(script).read_bytes()).hexdigest()[:16] if script else ""
    except OSError:
        script_digest = ""
    return f"{script_digest} {version()}"


def digest(*folders: Path) -> str:
    """Return a digest of the names and contents of all Python files in these folders, wherever the folders are."""
    sha256 = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            sha256.update(f"{folder.name}/{path.relative_to(folder)}\n".encode())
            sha256.update(path.read_bytes())
    return sha256.hexdigest()[:16]
