"""The record of a run in its folder."""

import json
from pathlib import Path

import pytest

from everstep.elastic.training.run_record import note_samples, open_record, run_id
from everstep.errors import EverstepError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    open_record(tmp_path / "run", 50, {"seed": 1})
    return tmp_path / "run"


def changes(folder: Path) -> list[tuple[int, int, int]]:
    """Return step, samples and generation of each recorded change."""
    record = json.loads((folder / "run.json").read_text())
    return [(c["step"], c["samples"], c["generation"]) for c in record.get("data_changes", [])]


def test_unchanged_data_are_not_recorded(folder: Path) -> None:
    note_samples(folder, 4, 50, generation=1)

    assert changes(folder) == []


def test_changed_data_are_recorded_once_with_their_step(folder: Path) -> None:
    note_samples(folder, 4, 30, generation=1)
    note_samples(folder, 9, 30, generation=2)

    assert changes(folder) == [(4, 30, 1)]


def test_a_run_that_resumes_before_a_change_records_the_data_used_from_there(
    folder: Path,
) -> None:
    note_samples(folder, 4, 30, generation=1)
    note_samples(folder, 2, 30, generation=2)

    assert changes(folder)[-1] == (2, 30, 2)


@pytest.mark.parametrize("step", [0, 2, 4])
def test_a_run_that_resumes_with_the_data_before_a_change_records_that_the_change_is_undone(
    folder: Path, step: int
) -> None:
    note_samples(folder, 4, 30, generation=1)
    note_samples(folder, step, 50, generation=2)
    note_samples(folder, step + 1, 50, generation=3)

    assert changes(folder) == [(4, 30, 1), (step, 50, 2)], "later steps have 50 samples again"


def test_a_run_that_continues_keeps_its_identity(folder: Path) -> None:
    identity = run_id(folder)
    open_record(folder, 60, {"seed": 1})

    assert identity
    assert run_id(folder) == identity


def test_a_record_that_is_missing_or_invalid_has_no_identity(folder: Path) -> None:
    assert run_id(folder.parent) == ""

    record = folder / "run.json"
    for content in (record.read_bytes()[:-1], b"[]"):
        record.write_bytes(content)
        assert run_id(folder) == ""


def test_a_folder_that_cannot_be_created_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file at the folder's path")

    with pytest.raises(EverstepError, match="cannot be written") as error:
        open_record(tmp_path / "run", 10, {})

    assert "Free space" in error.value.fix


def test_a_record_that_cannot_be_read_is_not_taken_for_another_run(folder: Path) -> None:
    (folder / "run.json").unlink()
    assert run_id(folder) == ""

    (folder / "run.json").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        run_id(folder)
