"""A folder of photographs in the layout of torchvision's ImageFolder: train/<class>/..., and test/ or val/.

Samples are ordered by name, so that every worker has the same ids.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from everstep.errors import EverstepError
from trainer.data.dataset import SPLITS, Labels
from trainer.data.jpeg import Encoded

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
_TEST_NAMES = ("test", "val")


@dataclass(frozen=True)
class ImageFile:
    """One file.

    Attributes:
        path: path below the split's folder.
        label: index of its class.
        bytes: its size.
    """

    path: str
    label: int
    bytes: int


class FolderImageSource:
    """Files of one split."""

    def __init__(self, folder: Path, files: Sequence[ImageFile], classes: Sequence[str]) -> None:
        self._folder, self._files = folder, files
        self.classes = classes
        self.labels: Labels = np.array([file.label for file in files], np.int64)
        self.identity = describe(len(files), len(classes), digest_of(files))

    def read(self, sample: int) -> Encoded:
        """Return the bytes of one file."""
        data = np.fromfile(self._folder / self._files[sample].path, np.uint8)
        if not len(data):
            raise ValueError("it is empty")
        return data

    def prefetch(self, samples: Sequence[int]) -> None:
        """Do nothing: files are read on request."""

    def name(self, sample: int) -> str:
        """Return the path of the file."""
        return str(self._folder / self._files[sample].path)


def open_folder(folder: Path, split: str) -> FolderImageSource:
    """Return the images of one split.

    Raises:
        EverstepError: the folder does not exist, contains no image or cannot be read, or its splits
            have different classes.
    """
    root, classes = split_folder(folder, split), list_common_classes(folder)
    files = [file for file in list_files(root, classes) if file.path.lower().endswith(SUFFIXES)]
    if not files:
        raise _no_images(root)
    return FolderImageSource(root, files, classes)


def split_folder(folder: Path, split: str) -> Path:
    """Return the folder of a split; the evaluation split may be called test or val.

    The first of these with class folders: ImageNet's test images have no labels and lie in one folder.
    """
    names = _TEST_NAMES if split in _TEST_NAMES else (split,)
    folders = [folder / name for name in names if (folder / name).is_dir()]
    return next(filter(_class_names, folders), (folders or [folder / names[0]])[0])


def _class_names(folder: Path) -> list[str]:
    with _readable_files(), os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))


def list_common_classes(folder: Path) -> list[str]:
    """Return the names of the classes of all splits in the order of their labels.

    Raises:
        EverstepError: a split does not exist, contains no class or cannot be read, or the splits have
            different classes.
    """
    train, test = (list_classes(split_folder(folder, split)) for split in SPLITS)
    if train != test:
        raise _class_difference(folder, train, test)
    return train


def list_classes(root: Path) -> list[str]:
    """Return the names of the classes in the order of their labels.

    Raises:
        EverstepError: the folder does not exist, contains no class or cannot be read.
    """
    if not root.is_dir():
        raise EverstepError(
            f"the data folder {root} does not exist",
            f"Put images under {root}/<class>/, for instance {root}/cat/1.jpg, or name a folder that "
            "`python3 -m trainer.prepare` has written.",
        )
    if classes := _class_names(root):
        return classes
    raise _no_images(root)


def list_files(root: Path, classes: Sequence[str]) -> Iterator[ImageFile]:
    """Yield every file of every class in a fixed order, without hidden files.

    Raises:
        EverstepError: a folder cannot be read, or a link is broken.
    """
    for label, name in enumerate(classes):
        with _readable_files():
            entries = sorted(_walk(str(root / name)))
        for path, size in entries:
            yield ImageFile(os.path.relpath(path, root), label, size)


def describe(samples: int, classes: int, digest: str) -> str:
    """Return the identity of a split as text, so that an error about two of them shows how they differ."""
    return f"{samples} images in {classes} classes, contents {digest[:16]}"


def digest_of(files: Sequence[ImageFile]) -> str:
    """Return a digest of names and sizes; reading every byte would take longer than a worker's start."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.bytes}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _walk(folder: str) -> Iterator[tuple[str, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                yield from _walk(entry.path)
            else:
                yield entry.path, entry.stat().st_size


@contextlib.contextmanager
def _readable_files() -> Iterator[None]:
    """Convert an error of the operating system into one with a fix."""
    try:
        yield
    except OSError as error:
        raise EverstepError(
            f"{error.filename} cannot be read: {error.strerror}",
            "Check its permissions; replace or remove a broken link.",
        ) from error


def _no_images(root: Path) -> EverstepError:
    return EverstepError(
        f"the data folder {root} contains no images in class folders",
        f"Put images under {root}/<class>/, for instance {root}/cat/1.jpg.",
    )


def _class_difference(folder: Path, train: Sequence[str], test: Sequence[str]) -> EverstepError:
    different_classes = sorted(set(train) ^ set(test))
    return EverstepError(
        f"the splits of {folder} have different classes; only one has {', '.join(map(repr, different_classes[:10]))}",
        "Give both the same folders: the label of a class is the position of its name.",
    )
