"""The folder that container images are built from: a clone, or the same layout from installed packages."""

import contextlib
import hashlib
from pathlib import Path

from cloudtwin.facade import cache_directory

from everstep.resources import DATA, PACKAGES, in_clone

SOURCES = ("controller", "etcd", "everstep", "spot", "trainer")
"""Packages that images are built from."""


def source_root() -> Path:
    """Return a folder with packages and requirements in the layout of a clone.

    For installed wheels it is a folder of links in the cache. Paths and contents are the same as in a clone, so images
    get the same cache keys.
    """
    if in_clone():
        return PACKAGES
    key = hashlib.sha256(str(PACKAGES).encode()).hexdigest()[:8]
    root = cache_directory().absolute() / "sources" / key
    root.mkdir(parents=True, exist_ok=True)
    links = {name: PACKAGES / name for name in SOURCES} | {"requirements": DATA / "requirements"}
    for name, target in links.items():
        _link(root / name, target)
    return root


def _link(path: Path, target: Path) -> None:
    """Make a symbolic link unless it exists; another process may make it at the same time."""
    with contextlib.suppress(FileExistsError):
        path.symlink_to(target, target_is_directory=True)
