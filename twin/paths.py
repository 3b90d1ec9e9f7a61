"""Where the twin keeps what it builds and what it runs."""

import os
import re
from pathlib import Path

from everstep.errors import EverstepError

DEFAULT = "default"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")


def cache_directory() -> Path:
    """Return the folder for what is costly to make and can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "everstep"


def state_root() -> Path:
    """Return the folder that holds one folder for each twin."""
    if chosen := os.environ.get("EVERSTEP_STATE"):
        return Path(chosen).absolute()
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state.absolute() / "everstep"


def twin_name(name: str | None = None) -> str:
    """Return the name of the twin that is meant: the one given, else $EVERSTEP_TWIN, else the default.

    Raises:
        EverstepError: the name cannot be part of a folder, a cgroup and a host name.
    """
    chosen = name or os.environ.get("EVERSTEP_TWIN") or DEFAULT
    if not NAME.fullmatch(chosen):
        raise EverstepError(
            f"{chosen!r} cannot name a twin.",
            "Use 1 to 30 lower-case letters, digits and hyphens, with no hyphen at either end.",
        )
    return chosen


def state_directory(name: str | None = None) -> Path:
    """Return the folder of one twin: all it keeps while it stands, gone when it is taken down."""
    return state_root() / twin_name(name)
