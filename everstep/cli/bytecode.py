"""Keeps compiled Python in Everstep's own cache where Python was told not to keep any.

Container images and CI runners commonly set PYTHONDONTWRITEBYTECODE, so that nothing is written
beside the sources. Every process then compiles all that it imports: of a cloud's SDK these are
megabytes, and most of the time of a preview. A folder of our own leaves the sources alone too, and
each of them is compiled once.
"""

import os
import sys

from twin.paths import cache_directory


def settings() -> dict[str, str]:
    """The variables that make a Python process keep bytecode; none where it does so by itself."""
    folder = _folder()
    if sys.pycache_prefix != folder and not sys.dont_write_bytecode:
        return {}
    return {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}


def keep() -> None:
    """Keep the bytecode of what this process has yet to import, and of every process it starts."""
    if chosen := settings():
        os.environ.update(chosen)
        sys.pycache_prefix, sys.dont_write_bytecode = _folder(), False


def _folder() -> str:
    return str(cache_directory().absolute() / "bytecode")
