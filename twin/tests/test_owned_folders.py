"""Folders of twins and stacks, and folders of the user with their names."""

import shutil
from pathlib import Path

import pytest
from cloudtwin import owned_folders
from cloudtwin.errors import TwinError
from cloudtwin.owned_folders import MARKER, claim, has_foreign_files, is_owned, remove


def create(folder: Path, *names: str) -> Path:
    """Create empty files in a folder, and return it."""
    folder.mkdir()
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    "names", [["images/0.jpg"], ["lock", "notes.txt"], ["machines/0", "cloud/a"]]
)
def test_a_folder_of_the_user_is_neither_marked_nor_removed(
    tmp_path: Path, names: list[str]
) -> None:
    folder = create(tmp_path / "data", *names)

    for action in (claim, remove):
        with pytest.raises(TwinError, match="files of another origin"):
            action(folder)

    assert all((folder / name).exists() for name in names)
    assert not (folder / MARKER).exists()
    assert not is_owned(folder)


@pytest.mark.parametrize(
    "names",
    [
        ["twin.json", "lock", "pki/ca.crt"],
        ["pulumi/passphrase"],
        ["up.lock", "pulumi/home/x"],
        ["cloud/account-aws.json"],
        ["machines/gpu-0/machine.json", "images/x"],
        ["up.lock", "control-plane/etcd.json"],
    ],
)
def test_the_folder_of_an_earlier_version_is_recognized_by_its_files(
    tmp_path: Path, names: list[str]
) -> None:
    folder = create(tmp_path / "default", *names)

    assert is_owned(folder)
    remove(folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("text", "owned"),
    [('{"recipes": [], "shared_mount": "/mnt/shared"}', True), ('{"lr": 0.1}', False)],
)
def test_the_folder_of_a_twin_whose_first_start_was_interrupted_is_recognized(
    tmp_path: Path, text: str, owned: bool
) -> None:
    folder = create(tmp_path / "default", "up.lock", "shared/x")
    (folder / "options.json").write_text(text)

    assert is_owned(folder) is owned


def test_data_that_a_user_has_put_on_the_volume_become_part_of_the_twin_with_up_only(
    tmp_path: Path,
) -> None:
    folder = create(tmp_path / "default", "shared/data/photo.jpg")

    with pytest.raises(TwinError, match="files of another origin"):
        remove(folder)
    assert (folder / "shared/data/photo.jpg").exists()

    claim(folder, may_have_data=True)
    assert is_owned(folder)


def test_the_empty_folder_of_a_preview_can_be_claimed(tmp_path: Path) -> None:
    folder = create(tmp_path / "eks-dev", "machines.json")
    (folder / "pulumi").mkdir()

    claim(folder)

    assert is_owned(folder)


@pytest.mark.parametrize(
    "names", [[], ["up.lock"], ["lock"], ["machines.json", "moves-fashion.json"]]
)
def test_a_folder_with_no_more_than_locks_and_logs_can_be_claimed(
    tmp_path: Path, names: list[str]
) -> None:
    folder = create(tmp_path / "default", *names)
    assert not has_foreign_files(folder)

    claim(folder)

    assert (folder / MARKER).is_file()


def test_a_folder_that_could_not_be_removed_as_a_whole_keeps_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = create(tmp_path / "default", "twin.json", "shared/a")

    def fail(path: Path) -> None:
        raise OSError(path)

    monkeypatch.setattr(shutil, "rmtree", fail)
    with pytest.raises(OSError, match="shared"):
        owned_folders.remove(folder)

    assert (folder / MARKER).is_file(), "otherwise the next `down` would refuse the folder"


def test_only_a_new_folder_is_marked_without_a_check(tmp_path: Path) -> None:
    for name in ("new", "old"):
        if name == "old":
            create(tmp_path / name, "notes.txt")
        owned_folders.mark_new(tmp_path / name)

    assert is_owned(tmp_path / "new")
    assert not is_owned(tmp_path / "old")
