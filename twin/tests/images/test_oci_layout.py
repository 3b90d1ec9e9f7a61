"""OCI layouts and archives: equal content, references, and errors."""

import json
import tarfile
from collections.abc import Collection
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.images import oci_layout

from twin.tests.images.tars import write_tar


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a layout folder of one image with one layer."""
    layer = write_tar(tmp_path / "layer.tar", hello=b"world")
    oci_layout.single_layer(
        tmp_path / "oci", layer, "localhost/cloudtwin/x:local", {"Cmd": ["hello"]}
    )
    return tmp_path / "oci"


def write_archive(
    folder: Path, path: Path, reference: str | None = None, present: Collection[str] = ()
) -> Path:
    with path.open("wb") as file:
        oci_layout.write_archive(folder, reference, file, present)
    return path


def blobs(folder: Path) -> dict[str, bytes]:
    return {blob.name: blob.read_bytes() for blob in (folder / "blobs" / "sha256").iterdir()}


def test_equal_layers_make_equal_images_at_any_time(tmp_path: Path, folder: Path) -> None:
    layer = write_tar(tmp_path / "again.tar", hello=b"world")
    oci_layout.single_layer(
        tmp_path / "again", layer, "localhost/cloudtwin/x:local", {"Cmd": ["hello"]}
    )

    assert oci_layout.read(tmp_path / "again") == oci_layout.read(folder)


def test_a_tar_of_a_layout_has_its_reference_and_its_blobs(tmp_path: Path, folder: Path) -> None:
    archive = write_archive(folder, tmp_path / "x.tar")

    assert [image.reference for image in oci_layout.read(archive)] == [
        "localhost/cloudtwin/x:local"
    ]
    with tarfile.open(archive) as tar:
        names = {name.rpartition("/")[2] for name in tar.getnames() if "sha256" in name}
    assert names == set(blobs(folder))


def test_blobs_that_the_reader_has_are_left_out_of_the_tar(tmp_path: Path, folder: Path) -> None:
    largest = max(blobs(folder), key=lambda name: len(blobs(folder)[name]))

    archive = write_archive(folder, tmp_path / "thin.tar", present={largest})

    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert f"blobs/sha256/{largest}" not in names
    assert len(names) == 2 + len(blobs(folder)) - 1


def test_an_image_is_written_under_the_given_name(tmp_path: Path, folder: Path) -> None:
    archive = write_archive(folder, tmp_path / "x.tar", reference="registry.test/team/y:1")

    assert [image.reference for image in oci_layout.read(archive)] == ["registry.test/team/y:1"]


@pytest.mark.parametrize(
    ("annotations", "reference"),
    [
        (
            {"io.containerd.image.name": "docker.io/library/a:1", oci_layout.REFERENCE: "1"},
            "docker.io/library/a:1",
        ),
        ({oci_layout.REFERENCE: "quay.io/b/c:2"}, "quay.io/b/c:2"),
        ({oci_layout.REFERENCE: "v3"}, "localhost/mine:v3"),
        ({}, "localhost/mine:latest"),
    ],
)
def test_a_users_archive_is_named_by_its_annotations_or_its_file(
    tmp_path: Path, annotations: dict[str, str], reference: str
) -> None:
    index = {"manifests": [{"digest": "sha256:0", "annotations": annotations}]}
    archive = write_tar(tmp_path / "Mine.tar", **{"index.json": json.dumps(index).encode()})

    assert [image.reference for image in oci_layout.read(archive)] == [reference]


@pytest.mark.parametrize(
    "files",
    [
        {"manifest.json": b"[]"},
        {"index.json": b"{}"},
        {"index.json": b"[]"},
        {"index.json": b'{"manifests": ["sha256:0"]}'},
        {"index.json": b"not JSON"},
    ],
)
def test_a_tar_that_is_not_an_oci_archive_is_refused_with_a_fix(
    tmp_path: Path, files: dict[str, bytes]
) -> None:
    archive = write_tar(tmp_path / "old.tar", **files)

    with pytest.raises(TwinError, match="not an OCI archive") as error:
        oci_layout.read(archive)

    assert "oci-archive" in error.value.fix


def test_a_file_that_is_not_a_tar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_text("hello")

    with pytest.raises(TwinError, match=r"x\.tar is not an OCI archive"):
        oci_layout.read(tmp_path / "x.tar")


def test_layouts_share_blobs_and_drop_unused_ones(tmp_path: Path, folder: Path) -> None:
    (folder / "blobs" / "sha256" / "stray").write_bytes(b"of an older build")

    oci_layout.share_blobs(folder, tmp_path / "other")
    oci_layout.drop_unused(folder)

    assert "stray" in blobs(tmp_path / "other")
    assert "stray" not in blobs(folder)
    for name in blobs(folder):
        blob = folder / "blobs" / "sha256" / name
        assert blob.samefile(tmp_path / "other" / "blobs" / "sha256" / name)
