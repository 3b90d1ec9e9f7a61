"""Sources in a folder."""

import os
from pathlib import Path

import pytest

from everstep.errors import EverstepError
from everstep.staging.sources.folder import FolderSource


def test_all_files_are_listed_with_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_text("123")
    (tmp_path / "a/d").write_text("")

    files = {(entry.name, entry.size) for entry in FolderSource(tmp_path).entries()}

    assert files == {("a/b/c", 3), ("a/d", 0)}


@pytest.mark.parametrize("kind", ["symbolic link", "device, pipe or socket"])
def test_a_path_that_is_not_a_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "special"
    if kind == "symbolic link":
        path.symlink_to("/etc/passwd")
    else:
        os.mkfifo(path)

    with pytest.raises(EverstepError, match=f"special is a {kind}"):
        list(FolderSource(tmp_path).entries())


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(EverstepError, match=r"gone cannot be read: No such file"):
        list(FolderSource(tmp_path / "gone").entries())
