"""Paths of Everstep's files that are not modules: at the root of a clone, or inside the package of a wheel.

`everstep._data` of a wheel contains the folders `manifests`, `stacks` and `requirements` and the Pulumi program
(`Pulumi.yaml`, `__main__.py`). In a clone, even if it is installed with --editable, they are next to the package.
"""

from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent
"""Folder of the packages everstep, components, trainer and so on: the root of a clone, or site-packages."""

DATA = Path(__file__).resolve().parent / "_data"


def in_clone() -> bool:
    """Return True if Everstep runs from a clone of its repository."""
    return not DATA.is_dir()


def data_path(name: str) -> Path:
    """Return the path of a file or folder of the repository's root, such as `manifests`."""
    return (PACKAGES if in_clone() else DATA) / name
