"""The real file system: each operation reaches it, and data that must be durable is synced."""

import errno
import os
from pathlib import Path

import pytest

from everstep.elastic.checkpoint.disk import DISK, Disk


@pytest.fixture
def synced_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of synced paths, in order; it grows with each sync."""
    paths, fsync = list[str](), os.fsync

    def record_and_sync(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 - a link of /proc
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record_and_sync)
    return paths


def test_the_sync_of_a_file_reaches_the_disk_with_all_bytes(
    tmp_path: Path, synced_paths: list[str]
) -> None:
    with DISK.create(tmp_path / "state") as file:
        file.write(b"abc")
        file.write(memoryview(b"def"))
        file.sync()
        assert synced_paths == [str(tmp_path / "state")], "a power failure would lose the file"
        assert (tmp_path / "state").read_bytes() == b"abcdef", "nothing is left in a buffer"


def test_the_parents_of_a_folder_are_synced_up_to_the_root_of_the_volume(
    tmp_path: Path, synced_paths: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Disk, "is_mount", lambda _, path: path == tmp_path)
    folder = tmp_path / "runs" / "a" / "checkpoints"
    folder.mkdir(parents=True)

    DISK.sync_parents(folder)

    assert synced_paths == [str(folder.parent), str(folder.parent.parent), str(tmp_path)]


def test_the_sync_of_parents_ends_at_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced_paths = []

    def sync(_: Disk, path: Path) -> None:
        if path == tmp_path:
            raise PermissionError(errno.EACCES, "permission denied", str(path))
        synced_paths.append(path)

    monkeypatch.setattr(Disk, "sync_folder", sync)

    DISK.sync_parents(tmp_path / "runs" / "checkpoints")

    assert synced_paths == [tmp_path / "runs"]


def test_the_sync_of_a_folder_reaches_the_disk(tmp_path: Path, synced_paths: list[str]) -> None:
    DISK.sync_folder(tmp_path)

    assert synced_paths == [str(tmp_path)], "a power failure would lose the names in it"


def test_the_names_of_new_parents_are_durable(tmp_path: Path, synced_paths: list[str]) -> None:
    DISK.make_folder(tmp_path / "run" / "checkpoints" / "staging")

    assert str(tmp_path) in synced_paths
    assert str(tmp_path / "run") in synced_paths


def test_a_rename_never_replaces_a_folder_with_content(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()

    with pytest.raises(OSError, match="not empty") as error:
        DISK.rename(tmp_path / "old", tmp_path / "new")

    assert error.value.errno == errno.ENOTEMPTY, "`put_in_place` depends on it"
