"""Folders of the twin: the cache of costly builds and the state of each twin."""

import os
import re
from pathlib import Path

from cloudtwin.errors import TwinError

CACHE_VARIABLE = "CLOUDTWIN_CACHE"
STATE_VARIABLE = "CLOUDTWIN_STATE"
NAME_VARIABLE = "CLOUDTWIN_NAME"
FOLDER = "cloudtwin"
DEFAULT = "default"
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?")


def cache_directory() -> Path:
    """Return the folder of the results of costly builds; all of them can be rebuilt."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / FOLDER


def state_root() -> Path:
    """Return the folder that holds one folder for each twin."""
    if folder := os.environ.get(STATE_VARIABLE):
        return Path(folder).absolute()
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state.absolute() / FOLDER


def twin_name(name: str | None = None) -> str:
    """Return the given name of a twin, else $CLOUDTWIN_NAME, else `default`.

    Raises:
        TwinError: the name cannot be part of a folder, a cgroup and a host name.
    """
    resolved_name = name or os.environ.get(NAME_VARIABLE) or DEFAULT
    if not NAME.fullmatch(resolved_name):
        raise TwinError(
            f"{resolved_name!r} cannot name a twin.",
            "Use 1 to 30 lower-case letters, digits and hyphens, with no hyphen at either end.",
        )
    return resolved_name


def state_directory(name: str | None = None) -> Path:
    """Return the folder of one twin, which holds all of its state and is removed with it."""
    return state_root() / twin_name(name)
