"""Lines and steps of a run's journals."""

from pathlib import Path

from tests.journals import JournalReader, completed_steps


def test_a_step_that_a_new_rank_0_records_again_counts_once() -> None:
    assert completed_steps([{"step": 1}, {"step": 2}, {"step": 2, "again": True}]) == [1, 2]


def test_a_step_that_only_the_new_rank_0_records_counts() -> None:
    lines = [{"step": 1}, {"step": 3}, {"step": 2, "again": True}, {"step": 2, "again": True}]

    assert completed_steps(lines) == [1, 2, 3]


def test_a_step_that_was_computed_twice_appears_twice() -> None:
    assert completed_steps([{"step": 1}, {"step": 2}, {"step": 2}]) == [1, 2, 2]


def test_a_line_is_read_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"at": 1, "kind": "ü"}'.encode()[:-3])
    reader = JournalReader(tmp_path)
    assert reader.read() == []

    path.write_bytes('{"at": 1, "kind": "ü"}\n'.encode())

    assert [entry["kind"] for entry in reader.read()] == ["ü"]
    assert len(reader.read()) == 1


def test_all_files_of_a_run_are_merged_by_time(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"at": 2, "kind": "x"}\n')
    (tmp_path / "a.jsonl").write_text('{"at": 3, "kind": "y"}\n{"at": 1, "kind": "z"}\n')
    reader = JournalReader(tmp_path)

    assert [(e["kind"], e["file"]) for e in reader.read()] == [("z", "a"), ("x", "b"), ("y", "a")]

    (tmp_path / "c.jsonl").write_text('{"at": 1.5, "kind": "late"}\n')

    assert [e["kind"] for e in reader.read()] == ["z", "late", "x", "y"]
