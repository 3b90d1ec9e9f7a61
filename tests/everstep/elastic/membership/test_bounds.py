"""The file with the bounds of a group."""

from pathlib import Path

import pytest

from everstep.elastic.membership.bounds import read_bounds


@pytest.mark.parametrize(("content", "bounds"), [("1:3", (1, 3)), ("2:2\n", (2, 2)), ("4", (4, 4))])
def test_the_bounds_are_read_from_the_file(
    tmp_path: Path, content: str, bounds: tuple[int, int]
) -> None:
    (tmp_path / "nnodes").write_text(content)

    assert read_bounds(str(tmp_path / "nnodes")) == bounds


@pytest.mark.parametrize("content", ["", "3:1", "0:2", "one:two", "::", "-1:2"])
def test_invalid_bounds_are_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "nnodes").write_text(content)

    assert read_bounds(str(tmp_path / "nnodes")) is None


def test_a_missing_file_is_ignored(tmp_path: Path) -> None:
    assert read_bounds(str(tmp_path / "nowhere")) is None
