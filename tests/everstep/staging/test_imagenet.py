"""The arrangement of ImageNet's validation images."""

import tarfile
from pathlib import Path

import pytest

from everstep.errors import EverstepError
from everstep.staging.entry import Entry
from everstep.staging.imagenet import arrange, read_annotations
from everstep.staging.sources.tar import TarSource
from everstep.staging.stage import Observer, Options, stage
from tests.everstep.staging.trees import files_of

CLASSES = ("n01440764", "n01751748", "n15075141")


def image(number: int) -> str:
    return f"ILSVRC2012_val_{number:08}"


def write_xml(folder: Path, number: int, *labels: str) -> None:
    folder.mkdir(exist_ok=True)
    objects = "".join(f"<object>\n\t<name>{label}</name>\n</object>" for label in labels)
    text = f"<annotation>\n<folder>val</folder>{objects}</annotation>"
    (folder / f"{image(number)}.xml").write_text(text)


@pytest.fixture
def annotations(tmp_path: Path) -> Path:
    for number in range(1, 31):
        write_xml(tmp_path / "val", number, *[CLASSES[number % 3]] * (1 + number % 2))
    return tmp_path / "val"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return an archive like ILSVRC2012_img_val.tar."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(1, 31):
        (folder / f"{image(number)}.JPEG").write_text(f"image {number}")
    path = tmp_path / "val.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(folder, "")
    return path


def test_validation_images_are_staged_to_the_folders_of_their_classes(
    archive: Path, annotations: Path, tmp_path: Path
) -> None:
    classes = read_annotations(annotations)
    options = Options(rename=lambda entries: arrange(entries, classes))

    stage(TarSource(archive), tmp_path / "out", options, Observer())
    second_plan = stage(TarSource(archive), tmp_path / "out", options, Observer())

    staged_files = {name: path.read_text() for name, path in files_of(tmp_path / "out").items()}
    assert staged_files == {
        f"{CLASSES[number % 3]}/{image(number)}.JPEG": f"image {number}" for number in range(1, 31)
    }
    assert second_plan.complete.files == 30, "a second run copies nothing"


def test_the_table_of_the_competition_has_the_same_classes(
    annotations: Path, tmp_path: Path
) -> None:
    lines = [
        f"{image(number)},{CLASSES[number % 3]} 1 2 3 4 {CLASSES[number % 3]} 5 6 7 8"
        for number in range(1, 31)
    ]
    table = tmp_path / "LOC_val_solution.csv"
    table.write_text("\n".join(["ImageId,PredictionString", *lines]) + "\n")

    assert read_annotations(table) == read_annotations(annotations)


def test_images_without_annotation_are_named_before_anything_is_copied(
    archive: Path, annotations: Path, tmp_path: Path
) -> None:
    for number in (3, *range(10, 25)):
        (annotations / f"{image(number)}.xml").unlink()
    classes = read_annotations(annotations)
    options = Options(rename=lambda entries: arrange(entries, classes))

    with pytest.raises(EverstepError, match="16 validation images have no annotation") as error:
        stage(TarSource(archive), tmp_path / "out", options, Observer())

    assert f"{image(3)}.JPEG, {image(10)}.JPEG" in error.value.problem
    assert "and 6 more" in error.value.problem
    assert list((tmp_path / "out").iterdir()) == []


def arranged_names(*files: str) -> list[str]:
    entries = [Entry(name, 0, "") for name in files]
    return [entry.name for entry in arrange(entries, {image(1): CLASSES[0]})]


def test_other_files_and_arranged_images_keep_their_names() -> None:
    arranged_name = f"val/{CLASSES[0]}/{image(1)}.JPEG"

    assert arranged_names(arranged_name, "train/n0/x.JPEG", "README") == [
        arranged_name,
        "train/n0/x.JPEG",
        "README",
    ]
    assert arranged_names(f"ILSVRC/val/{image(1)}.JPEG") == [
        f"ILSVRC/val/{CLASSES[0]}/{image(1)}.JPEG"
    ]


def test_an_image_in_the_folder_of_another_class_is_refused() -> None:
    with pytest.raises(EverstepError, match=f"folder of {CLASSES[1]}, .* is {CLASSES[0]}"):
        arranged_names(f"val/{CLASSES[1]}/{image(1)}.JPEG")


def test_annotations_for_a_source_without_validation_images_are_refused() -> None:
    with pytest.raises(EverstepError, match="has no validation images"):
        arranged_names("train/x.JPEG")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ((), "has no object with a name"),
        (("dog",), "the class 'dog', which is not a WordNet ID"),
        (("../../etc",), "not a WordNet ID"),
        ((CLASSES[0], CLASSES[1]), f"is annotated as {CLASSES[0]} too"),
    ],
)
def test_a_wrong_annotation_is_reported(
    tmp_path: Path, labels: tuple[str, ...], words: str
) -> None:
    write_xml(tmp_path / "val", 1, *labels)

    with pytest.raises(EverstepError) as error:
        read_annotations(tmp_path / "val")

    assert words in error.value.problem
    assert image(1) in error.value.problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "does not begin with ImageId,PredictionString"),
        ("a,b\n", "does not begin with"),
        ("ImageId,PredictionString\n", "has no annotations"),
        ("ImageId,PredictionString\nx\n", "line 2 of .* has the class ''"),
        (f'ImageId,PredictionString\n"{"x" * 200_000}', "cannot be read: field larger than"),
    ],
)
def test_a_wrong_table_is_reported(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "table.csv").write_text(text)

    with pytest.raises(EverstepError, match=words) as error:
        read_annotations(tmp_path / "table.csv")

    assert "LOC_val_solution.csv" in error.value.fix


@pytest.mark.parametrize(
    ("name", "words"), [("none", "none do not exist"), ("empty", "empty has no annotations")]
)
def test_missing_annotations_are_reported(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(EverstepError, match=words):
        read_annotations(tmp_path / name)
