"""Files of a twin: complete or absent, and a damaged one is an error."""

import os
from pathlib import Path

import pytest
from cloudtwin import files
from cloudtwin.files import DamagedFileError
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=12,  # the generation of values takes most of the time of the test
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pools.json"


@given(value=st.dictionaries(st.text(), JSON, max_size=3))
def test_a_written_value_is_read_back(
    value: dict[str, object], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("files") / "value.json"

    files.write_json(path, value)

    assert files.read_json(path) == value


@given(cut=st.integers(0, 40))
def test_a_truncated_file_is_damaged(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("files") / "value.json"
    files.write_json(path, {"a pool": {"desired_size": 3, "max_size": 5}})
    path.write_text(path.read_text()[:cut])

    with pytest.raises(DamagedFileError):
        files.read_json(path)


def test_a_missing_file_reads_as_none(path: Path) -> None:
    assert files.read_json(path) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"7", b"\xff\xfe{}", b"\0\0\0"])
def test_the_error_for_a_damaged_file_has_its_path_and_a_fix(path: Path, content: bytes) -> None:
    path.write_bytes(content)

    with pytest.raises(DamagedFileError) as error:
        files.read_json(path)

    assert error.value.problem.startswith(f"{path} is damaged: ")
    assert error.value.fix.startswith("Restore or correct it.")
    assert files.read_json_if_valid(path) is None, "for callers that do not depend on it"


def test_a_file_that_cannot_be_read_is_an_error(path: Path) -> None:
    path.mkdir()

    with pytest.raises(DamagedFileError, match="Is a directory"):
        files.read_json(path)


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_json(path, {"old": 1})

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        files.write_json(path, {"new": 2})

    assert files.read_json(path) == {"old": 1}
    assert list(path.parent.iterdir()) == [path]
