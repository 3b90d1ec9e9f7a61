"""Where the twin keeps what it builds and what it runs."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """Return the folder for what is costly to make and can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "everstep"
