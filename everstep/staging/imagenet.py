"""Arrangement of ImageNet's validation images in a folder for each class, by their annotations.

The plan contains the arrangement: an image is copied to its final name, so there is no second pass that could be
interrupted. Annotations are text (XML or CSV). The MATLAB files of the development kit are not supported, and
neither are pickles.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from everstep.errors import EverstepError
from everstep.staging.entry import Entry

IMAGE = re.compile(r"(?:(?P<folder>.*)/)?(?P<file>(?P<image>ILSVRC2012_val_\d{8})\.JPEG)")
CLASS = re.compile(r"n\d{8}")
"""WordNet ID of a class, which is also the name of its folder."""

OBJECT_NAME = re.compile(r"<name>\s*([^<]*?)\s*</name>")
COLUMNS = ["ImageId", "PredictionString"]
ANNOTATIONS_HINT = (
    "Pass the folder Annotations/CLS-LOC/val with its XML files, or LOC_val_solution.csv."
)
MAX_NAMED_IMAGES = 10


def read_annotations(path: Path) -> dict[str, str]:
    """Return the class of each image, by its name without suffix.

    Args:
        path: folder with an XML file for each image, or the CSV file of the Kaggle competition.

    Raises:
        EverstepError: there are no annotations, or an annotation is not valid.
    """
    if not path.exists():
        raise EverstepError(f"the annotations {path} do not exist", ANNOTATIONS_HINT)
    classes: dict[str, str] = {}
    for image, label, source in _read(path):
        if not CLASS.fullmatch(label):
            raise EverstepError(
                f"{source} has the class {label!r}, which is not a WordNet ID like n01440764",
                ANNOTATIONS_HINT,
            )
        if classes.setdefault(image, label) != label:
            raise EverstepError(
                f"{source} has the class {label}; {image} is annotated as {classes[image]} too",
                "Remove the wrong annotation.",
            )
    if not classes:
        raise EverstepError(f"{path} has no annotations", ANNOTATIONS_HINT)
    return classes


def _read(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield image, class and source of each annotation.

    Raises:
        EverstepError: the annotations cannot be read.
    """
    try:
        yield from _read_folder(path) if path.is_dir() else _read_table(path)
    except (OSError, csv.Error) as error:
        raise EverstepError(
            f"the annotations {path} cannot be read: {error}", ANNOTATIONS_HINT
        ) from None


def _read_folder(folder: Path) -> Iterator[tuple[str, str, str]]:
    for path in sorted(folder.rglob("*.xml")):
        labels = OBJECT_NAME.findall(path.read_text(errors="replace"))
        if not labels:
            raise EverstepError(f"{path} has no object with a name", "Fetch the annotations again.")
        for label in labels:
            yield path.stem, label, str(path)


def _read_table(path: Path) -> Iterator[tuple[str, str, str]]:
    with path.open(newline="", errors="replace") as file:
        rows = csv.reader(file)
        if next(rows, None) != COLUMNS:
            raise EverstepError(f"{path} does not begin with {','.join(COLUMNS)}", ANNOTATIONS_HINT)
        for row in rows:
            image, prediction = (*row, "", "")[:2]
            yield image, prediction.partition(" ")[0], f"line {rows.line_num} of {path}"


def arrange(entries: Iterable[Entry], classes: Mapping[str, str]) -> Iterator[Entry]:
    """Yield the files, validation images in the folders of their classes.

    Raises:
        EverstepError: images have no annotation or are in the folder of another class, or there is no image.
    """
    missing: list[str] = []
    images = 0
    for entry in entries:
        match = IMAGE.fullmatch(entry.name)
        if match is None:
            yield entry
            continue
        images += 1
        label = classes.get(match["image"])
        if label is None:
            missing.append(match["file"])
            continue
        yield entry._replace(
            name=arranged_name(entry.name, match["folder"] or "", match["file"], label)
        )
    if missing:
        raise missing_annotations(missing)
    if not images:
        raise EverstepError(
            "the source has no validation images named ILSVRC2012_val_NNNNNNNN.JPEG",
            "Omit --annotations, or name the source that has the images.",
        )


def arranged_name(name: str, folder: str, file: str, label: str) -> str:
    """Return the name of an image in the folder of its class.

    Raises:
        EverstepError: the image is in the folder of another class.
    """
    parent = folder.rpartition("/")[2]
    if parent == label:
        return name
    if CLASS.fullmatch(parent):
        raise EverstepError(
            f"{name} is in the folder of {parent}, but its annotation is {label}",
            "Check which is right; the annotations may belong to another data set.",
        )
    return "/".join(filter(None, (folder, label, file)))


def missing_annotations(files: list[str]) -> EverstepError:
    """Return the error for images without annotations; it names the first images."""
    first_names = ", ".join(sorted(files)[:MAX_NAMED_IMAGES])
    remainder = (
        f" and {len(files) - MAX_NAMED_IMAGES} more" if len(files) > MAX_NAMED_IMAGES else ""
    )
    return EverstepError(
        f"{len(files)} validation images have no annotation: {first_names}{remainder}",
        "Complete the annotations; nothing was copied. " + ANNOTATIONS_HINT,
    )
