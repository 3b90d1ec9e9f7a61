from everstep.elastic.journal import Journal, Reader


def test_lines_come_back_in_order_with_their_times(tmp_path):
    journal = Journal(tmp_path / "journal" / "a.jsonl")
    journal.note("step", step=1)
    journal.note("step", step=2)

    entries = Reader(tmp_path / "journal").read()

    assert [entry["step"] for entry in entries] == [1, 2]
    assert entries[0]["at"] <= entries[1]["at"]


def test_a_torn_last_line_is_passed_over_and_swallows_no_later_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"at": 1, "kind": "step", "step": 1}\n{"at": 2, "ki')
    reader = Reader(tmp_path)
    assert [entry["step"] for entry in reader.read()] == [1]

    Journal(path).note("step", step=3)

    assert [entry["step"] for entry in reader.read()] == [1, 3]


def test_a_line_is_there_once_it_is_whole(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes('{"at": 1, "kind": "ü"}'.encode()[:-3])
    reader = Reader(tmp_path)
    assert reader.read() == []

    path.write_bytes('{"at": 1, "kind": "ü"}\n'.encode())

    assert [entry["kind"] for entry in reader.read()] == ["ü"]
    assert len(reader.read()) == 1


def test_all_files_of_a_run_are_read_in_the_order_of_time(tmp_path):
    (tmp_path / "b.jsonl").write_text('{"at": 2, "kind": "x"}\n')
    (tmp_path / "a.jsonl").write_text('{"at": 3, "kind": "y"}\n{"at": 1, "kind": "z"}\n')
    reader = Reader(tmp_path)

    assert [(e["kind"], e["file"]) for e in reader.read()] == [("z", "a"), ("x", "b"), ("y", "a")]

    (tmp_path / "c.jsonl").write_text('{"at": 1.5, "kind": "late"}\n')

    assert [e["kind"] for e in reader.read()] == ["z", "late", "x", "y"]
