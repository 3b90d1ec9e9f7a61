import io
import json
import tarfile

import pytest

from everstep.errors import EverstepError
from twin.images import layout


def tar_of(path, **files):
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


@pytest.fixture
def folder(tmp_path):
    """A layout folder of one image with one layer."""
    layer = tar_of(tmp_path / "layer.tar", hello=b"world")
    layout.single_layer(tmp_path / "oci", layer, "localhost/everstep/x:local", {"Cmd": ["hello"]})
    return tmp_path / "oci"


def archive_of(folder, path, reference=None, known=()):
    with path.open("wb") as out:
        layout.write_archive(folder, reference, out, known)
    return path


def blobs(folder):
    return {blob.name: blob.read_bytes() for blob in (folder / "blobs" / "sha256").iterdir()}


def test_equal_layers_make_equal_images_whenever_they_are_made(tmp_path, folder):
    layer = tar_of(tmp_path / "again.tar", hello=b"world")
    layout.single_layer(tmp_path / "again", layer, "localhost/everstep/x:local", {"Cmd": ["hello"]})

    assert layout.read(tmp_path / "again") == layout.read(folder)


def test_a_layout_goes_through_a_tar_unchanged(tmp_path, folder):
    archive = archive_of(folder, tmp_path / "x.tar")

    layout.extract(archive, tmp_path / "copy")

    assert blobs(tmp_path / "copy") == blobs(folder)
    assert layout.read(tmp_path / "copy")[0].reference == "localhost/everstep/x:local"


def test_what_the_reader_has_is_left_out_of_the_tar(tmp_path, folder):
    largest = max(blobs(folder), key=lambda name: len(blobs(folder)[name]))

    archive = archive_of(folder, tmp_path / "thin.tar", known={largest})

    with tarfile.open(archive) as opened:
        names = opened.getnames()
    assert f"blobs/sha256/{largest}" not in names
    assert len(names) == 2 + len(blobs(folder)) - 1


def test_an_image_is_imported_under_the_name_it_is_given(tmp_path, folder):
    archive = archive_of(folder, tmp_path / "x.tar", reference="registry.test/team/y:1")

    assert [image.reference for image in layout.read(archive)] == ["registry.test/team/y:1"]


@pytest.mark.parametrize(
    ("annotations", "reference"),
    [
        (
            {"io.containerd.image.name": "docker.io/library/a:1", layout.REFERENCE: "1"},
            "docker.io/library/a:1",
        ),
        ({layout.REFERENCE: "quay.io/b/c:2"}, "quay.io/b/c:2"),
        ({layout.REFERENCE: "v3"}, "localhost/mine:v3"),
        ({}, "localhost/mine:latest"),
    ],
)
def test_an_archive_of_others_is_named_by_its_notes_or_else_by_its_file(
    tmp_path, annotations, reference
):
    index = {"manifests": [{"digest": "sha256:0", "annotations": annotations}]}
    archive = tar_of(tmp_path / "Mine.tar", **{"index.json": json.dumps(index).encode()})

    assert [image.reference for image in layout.read(archive)] == [reference]


@pytest.mark.parametrize(
    "files", [{"manifest.json": b"[]"}, {"index.json": b"{}"}, {"index.json": b"not JSON"}]
)
def test_a_tar_that_is_no_oci_archive_is_refused_with_a_cure(tmp_path, files):
    archive = tar_of(tmp_path / "old.tar", **files)

    with pytest.raises(EverstepError, match="no OCI archive") as caught:
        layout.read(archive)

    assert "oci-archive" in caught.value.remedy


def test_a_file_that_is_no_tar_is_refused(tmp_path):
    (tmp_path / "x.tar").write_text("hello")

    with pytest.raises(EverstepError, match=r"x\.tar is no OCI archive"):
        layout.read(tmp_path / "x.tar")


def test_layouts_share_blobs_and_drop_those_no_image_needs(tmp_path, folder):
    (folder / "blobs" / "sha256" / "stray").write_bytes(b"of an older build")

    layout.share_blobs(folder, tmp_path / "other")
    layout.drop_unused(folder)

    assert "stray" in blobs(tmp_path / "other")
    assert "stray" not in blobs(folder)
    for name in blobs(folder):
        mine = folder / "blobs" / "sha256" / name
        assert mine.samefile(tmp_path / "other" / "blobs" / "sha256" / name)
