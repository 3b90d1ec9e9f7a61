"""Sources in archives, and in archives of archives."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from everstep.errors import EverstepError
from everstep.staging.entry import MANIFEST
from everstep.staging.sources.location import open_source
from everstep.staging.sources.tar import TarSource
from everstep.staging.stage import Observer, Options, stage
from tests.everstep.staging.trees import make_tree, missing_files, wrong_files

SPECIAL_TYPES = [
    (tarfile.SYMTYPE, "symbolic link"),
    (tarfile.LNKTYPE, "hard link"),
    (tarfile.CHRTYPE, "character device"),
    (tarfile.BLKTYPE, "block device"),
    (tarfile.FIFOTYPE, "pipe"),
]
LONG_NAME = "long-" * 40  # longer than the 100 bytes of a header's name


def archive_of(folder: Path, archive: Path, *, form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(archive, "w", format=form) as tar:
        tar.add(folder, ".")
    return archive


def archive_with(path: Path, member: tarfile.TarInfo, content: bytes = b"") -> Path:
    with tarfile.open(path, "w") as tar:
        regular = tarfile.TarInfo("good")
        tar.addfile(regular)
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    folder = make_tree(tmp_path / "classes", 40)
    (folder / LONG_NAME).mkdir()
    (folder / LONG_NAME / LONG_NAME).write_text("long")
    return folder


@pytest.fixture
def imagenet(tmp_path: Path, classes: Path) -> Path:
    """Return an archive with one archive for each class."""
    inner_folder = tmp_path / "inner"
    inner_folder.mkdir()
    for folder in classes.iterdir():
        with tarfile.open(inner_folder / f"{folder.name[:50]}.tar", "w") as tar:
            for path in folder.iterdir():
                tar.add(path, path.name)
    return archive_of(inner_folder, tmp_path / "train.tar")


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_an_archive_is_unpacked(classes: Path, tmp_path: Path, form: int) -> None:
    archive = archive_of(classes, tmp_path / "data.tar", form=form)

    stage(TarSource(archive), tmp_path / "out", Options(), Observer())

    assert wrong_files(classes, tmp_path / "out") == []
    assert missing_files(classes, tmp_path / "out") == set()


def test_the_manifest_of_an_archive_of_staged_data_is_not_copied(
    classes: Path, tmp_path: Path
) -> None:
    (classes / MANIFEST).write_text("")
    archive = archive_of(classes, tmp_path / "data.tar")

    names = [entry.name for entry in TarSource(archive).entries()]

    assert names
    assert MANIFEST not in names, "a manifest cannot contain its own checksum"


def test_an_archive_of_archives_becomes_a_folder_for_each(
    imagenet: Path, classes: Path, tmp_path: Path
) -> None:
    (classes / LONG_NAME).rename(classes / LONG_NAME[:50])

    stage(TarSource(imagenet), tmp_path / "out", Options(), Observer())

    assert wrong_files(classes, tmp_path / "out") == []
    assert missing_files(classes, tmp_path / "out") == set()


@pytest.mark.parametrize(("kind", "word"), SPECIAL_TYPES)
def test_links_and_devices_are_refused_before_anything_is_copied(
    tmp_path: Path, kind: bytes, word: str
) -> None:
    member = tarfile.TarInfo("bad")
    member.type, member.linkname = kind, "/etc/passwd"
    archive = archive_with(tmp_path / "bad.tar", member)

    with pytest.raises(EverstepError, match=f"'bad' of .*bad.tar is a {word}"):
        stage(TarSource(archive), tmp_path / "out", Options(), Observer())

    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["/etc/cron.d/x", "../x", "a/../../x", "a/./../b/../../x"])
def test_members_outside_the_destination_are_refused(tmp_path: Path, name: str) -> None:
    archive = archive_with(tmp_path / "bad.tar", tarfile.TarInfo(name))

    with pytest.raises(EverstepError, match=r"absolute path|contains '\.\.'"):
        stage(TarSource(archive), tmp_path / "out", Options(), Observer())

    assert list((tmp_path / "out").iterdir()) == []


def test_members_of_an_inner_archive_are_refused_too(tmp_path: Path) -> None:
    inner_archive = archive_with(tmp_path / "inner.tar", tarfile.TarInfo("../../x"))
    outer_archive = archive_with(
        tmp_path / "o.tar", tarfile.TarInfo("n01.tar"), inner_archive.read_bytes()
    )

    with pytest.raises(EverstepError, match=r"contains '\.\.'"):
        list(TarSource(outer_archive).entries())


def test_an_archive_that_is_truncated_anywhere_is_refused(imagenet: Path, tmp_path: Path) -> None:
    content = imagenet.read_bytes()
    cut_archive = tmp_path / "cut.tar"
    end = len(content.rstrip(b"\0"))
    for length in range(0, end, max(end // 50, 1)):
        cut_archive.write_bytes(content[: length - length % 512])

        with pytest.raises(
            EverstepError, match=r"cut\.tar (is damaged|is not a complete|ends within)"
        ):
            list(TarSource(cut_archive).entries())


def test_an_archive_with_a_damaged_header_is_refused(imagenet: Path, tmp_path: Path) -> None:
    with tarfile.open(imagenet) as tar:
        offsets = [member.offset for member in tar][2:5]
    for offset in offsets:
        content = bytearray(imagenet.read_bytes())
        content[offset + 1] ^= 1
        damaged_archive = tmp_path / "damaged.tar"
        damaged_archive.write_bytes(content)

        with pytest.raises(EverstepError, match=r"damaged\.tar is (damaged|not a complete)"):
            list(TarSource(damaged_archive).entries())


@pytest.mark.parametrize(("program", "suffix"), [("gzip", "gz"), ("xz", "xz"), ("bzip2", "bz2")])
def test_a_compressed_archive_is_refused_with_the_command_that_decompresses_it(
    tmp_path: Path, program: str, suffix: str
) -> None:
    path = tmp_path / f"data.tar.{suffix}"
    with tarfile.open(path, f"w:{suffix}") as tar:  # type: ignore[call-overload]
        tar.addfile(tarfile.TarInfo("x"))

    with pytest.raises(EverstepError, match=f"is compressed with {program}") as error:
        list(open_source(str(path)).entries())

    assert f"{program} -d" in error.value.fix


def test_an_archive_that_changes_is_refused(classes: Path, tmp_path: Path) -> None:
    source = TarSource(archive_of(classes, tmp_path / "data.tar"))
    entry = next(source.entries())
    with (tmp_path / "data.tar").open("ab") as file:
        file.write(b"\0" * 512)
    os.utime(tmp_path / "data.tar", (0, 0))

    with (
        pytest.raises(EverstepError, match=r"data\.tar changed after it was listed"),
        source.open(entry, 0),
    ):
        pass
