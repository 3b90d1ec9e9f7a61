"""Files that appear complete or not at all."""

from pathlib import Path

import pytest

from everstep.files import write_atomically


def test_a_file_is_replaced_in_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"

    write_atomically(path, "old")
    write_atomically(path, b"new")

    assert path.read_text() == "new"
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()

    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path / "folder", "text")

    assert [file.name for file in tmp_path.iterdir()] == ["folder"]
