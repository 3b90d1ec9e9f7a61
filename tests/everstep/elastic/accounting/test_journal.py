"""Journals: their lines, torn lines, and a disk that hangs."""

import contextlib
import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from everstep.elastic.accounting import journal as journals
from everstep.elastic.accounting.journal import Journal
from tests.journals import JournalReader

WAIT_SECONDS = 100.0  # limit on a busy machine


def test_lines_are_read_in_order_with_their_times(tmp_path: Path) -> None:
    with contextlib.closing(Journal(tmp_path / "journal" / "a.jsonl")) as journal:
        journal.note("step", step=1)
        journal.note("step", step=2)
        assert journal.flush(WAIT_SECONDS)

    entries = JournalReader(tmp_path / "journal").read()

    assert [entry["step"] for entry in entries] == [1, 2]
    assert entries[0]["at"] <= entries[1]["at"]


def test_an_incomplete_last_line_is_ignored_and_does_not_affect_later_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"at": 1, "kind": "step", "step": 1}\n{"at": 2, "ki')
    reader = JournalReader(tmp_path)
    assert [entry["step"] for entry in reader.read()] == [1]

    with contextlib.closing(Journal(path)) as journal:
        journal.note("step", step=3)
        assert journal.flush(WAIT_SECONDS)

    assert [entry["step"] for entry in reader.read()] == [1, 3]


def test_a_disk_that_hangs_does_not_stop_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "STUCK_SECONDS", 0.1)
    os.mkfifo(tmp_path / "hung.jsonl")  # opening one end blocks until the other end is open
    journal = Journal(tmp_path / "hung.jsonl")

    journal.note("step", step=1)
    assert not journal.flush(0.3), "a thread that waits for the disk would never get here"
    journal.note("step", step=2)

    assert "does not respond" in caplog.text
    both_ends = os.open(tmp_path / "hung.jsonl", os.O_RDWR)  # the disk responds again
    journal.close()
    os.close(both_ends)


def test_lines_that_a_full_disk_refused_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, write = Journal(tmp_path / "a.jsonl"), os.write
    free_bytes = 0

    def limited_write(descriptor: int, data: bytes) -> int:
        if not free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:free_bytes])

    monkeypatch.setattr(os, "write", limited_write)
    for step in (1, 2):
        journal.note("step", step=step)
        assert journal.flush(WAIT_SECONDS)
    free_bytes = 20  # a torn line
    journal.note("step", step=3)
    assert journal.flush(WAIT_SECONDS)
    free_bytes = 10**6
    journal.note("step", step=4)
    journal.close()

    kinds = {(e["kind"], e.get("lines"), e.get("step")) for e in JournalReader(tmp_path).read()}
    assert kinds == {("lost_lines", 3, None), ("step", None, 4)}


def test_the_file_is_closed_within_seconds_so_that_other_machines_see_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "CLOSE_SECONDS", 0.1)
    closed, close = threading.Event(), os.close

    def record_and_close(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("a.jsonl"):  # noqa: PTH115 - a link of /proc
            closed.set()
        close(descriptor)

    monkeypatch.setattr(os, "close", record_and_close)
    journal = Journal(tmp_path / "a.jsonl")
    journal.note("step", step=1)

    assert closed.wait(WAIT_SECONDS), "blobfuse uploads a file only when it is closed"
    journal.note("step", step=2)
    journal.close()
    assert [e["step"] for e in JournalReader(tmp_path).read()] == [1, 2]


def test_flush_all_writes_the_lines_of_a_process_that_exits_immediately(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from everstep.elastic.accounting import journal\n"
        "journal.Journal(Path(sys.argv[1])).note('finish', step=9); journal.flush_all(); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.jsonl")], check=True)

    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["finish"]
