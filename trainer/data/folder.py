"""A folder of photographs as torchvision's ImageFolder reads it: train/<class>/..., and test/ or val/.

The order of samples is the order of their names, so that every worker has the same ids.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from everstep.errors import EverstepError
from trainer.data.dataset import Labels
from trainer.data.jpeg import Encoded

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_TEST_NAMES = ("test", "val")


@dataclass(frozen=True)
class File:
    """One file, by its path below the part's folder."""

    path: str
    label: int
    bytes: int


class FolderSource:
    """Files of one part."""

    def __init__(self, folder: Path, files: Sequence[File], classes: Sequence[str]) -> None:
        self._folder, self._files = folder, files
        self.classes = classes
        self.labels: Labels = np.array([file.label for file in files], np.int64)
        self.identity = describe(len(files), len(classes), digest_of(files))

    def read(self, sample: int) -> Encoded:
        """The bytes of one file."""
        data = np.fromfile(self._folder / self._files[sample].path, np.uint8)
        if not len(data):
            raise ValueError("it is empty")
        return data

    def name(self, sample: int) -> str:
        """The file."""
        return str(self._folder / self._files[sample].path)


def open_folder(folder: Path, part: str) -> FolderSource:
    """The pictures of one part.

    Raises:
        EverstepError: there is no such folder, or no picture in it.
    """
    place = part_folder(folder, part)
    classes = list_classes(place)
    files = [file for file in list_files(place, classes) if file.path.lower().endswith(SUFFIXES)]
    if not files:
        raise _nothing_in(place)
    return FolderSource(place, files, classes)


def part_folder(folder: Path, part: str) -> Path:
    """Where a part lies; what is evaluated may be called test or val."""
    names = _TEST_NAMES if part in _TEST_NAMES else (part,)
    return next((folder / name for name in names if (folder / name).is_dir()), folder / names[0])


def list_classes(place: Path) -> list[str]:
    """Names of the classes, in the order of their labels.

    Raises:
        EverstepError: there is no such folder, or none in it.
    """
    if not place.is_dir():
        raise EverstepError(
            f"the data folder {place} does not exist",
            f"Put images under {place}/<class>/, for instance {place}/cat/1.jpg, or name a folder that "
            "`python3 -m trainer.prepare` has written.",
        )
    with os.scandir(place) as entries:
        classes = sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
    if not classes:
        raise _nothing_in(place)
    return classes


def list_files(place: Path, classes: Sequence[str]) -> Iterator[File]:
    """Every file of every class in a fixed order, hidden ones left out."""
    for label, name in enumerate(classes):
        found = sorted(_walk(str(place / name)))
        for path, size in found:
            yield File(os.path.relpath(path, place), label, size)


def describe(samples: int, classes: int, digest: str) -> str:
    """What a part is, in words that say what differs when they differ."""
    return f"{samples} images in {classes} classes, contents {digest[:16]}"


def digest_of(files: Sequence[File]) -> str:
    """Of the names and sizes: to read every byte at each start of a worker would take longer than the start."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.path}\0{file.bytes}\n".encode(errors="surrogateescape"))
    return whole.hexdigest()


def _walk(folder: str) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _walk(entry.path)
            else:
                yield entry.path, entry.stat().st_size


def _nothing_in(place: Path) -> EverstepError:
    return EverstepError(
        f"the data folder {place} has no image in a folder per class",
        f"Put images under {place}/<class>/, for instance {place}/cat/1.jpg.",
    )
