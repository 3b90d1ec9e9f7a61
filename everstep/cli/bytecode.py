"""Compiled Python in Everstep's cache, for a Python that is configured not to write any.

Container images and CI runners commonly set PYTHONDONTWRITEBYTECODE, so that nothing is written
next to the sources. Every process then compiles all modules that it imports: megabytes of a cloud's SDK, which is
most of the time of a preview. A separate folder keeps the sources clean too, and each module is compiled once.
"""

import os
import sys

from cloudtwin.facade import cache_directory


def settings() -> dict[str, str]:
    """Return variables that make a Python process keep bytecode; empty if Python keeps it by default."""
    folder = _folder()
    if sys.pycache_prefix != folder and not sys.dont_write_bytecode:
        return {}
    return {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}


def keep() -> None:
    """Keep the bytecode of later imports in this process and in every process it starts."""
    if variables := settings():
        os.environ.update(variables)
        sys.pycache_prefix, sys.dont_write_bytecode = _folder(), False


def _folder() -> str:
    return str(cache_directory().absolute() / "bytecode")
