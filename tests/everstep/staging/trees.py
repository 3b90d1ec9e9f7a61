"""Folders of files with random content, and the comparison of a staged copy with its source."""

import random
from pathlib import Path

from everstep.staging.entry import is_own_file

SIZES = (0, 1, 700, 4096, 5000, 70_000)


def make_tree(folder: Path, files: int, seed: int = 0) -> Path:
    """Create a number of files of several sizes in several folders; return the folder."""
    rng = random.Random(seed)
    for number in range(files):
        path = folder / f"class-{number % 7}" / f"{number:05}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(SIZES[number % len(SIZES)]))
    return folder


def files_of(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by name, without the state and the manifest of a staging."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if not path.is_dir()}
    return {name: path for name, path in files.items() if not is_own_file(name)}


def wrong_files(source: Path, destination: Path) -> list[str]:
    """Return the files of a destination that differ from the source."""
    originals = files_of(source)
    return [
        name
        for name, path in files_of(destination).items()
        if name not in originals or path.read_bytes() != originals[name].read_bytes()
    ]


def missing_files(source: Path, destination: Path) -> set[str]:
    """Return the files of a source that are not at a destination."""
    return files_of(source).keys() - files_of(destination).keys()
