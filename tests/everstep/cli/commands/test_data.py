"""`everstep data stage` with the real command."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from everstep.cli import staging_display
from everstep.staging.copier import Progress
from everstep.staging.stage import Plan
from everstep.staging.totals import Totals
from tests.everstep.staging.trees import make_tree, missing_files, wrong_files

EVERSTEP = str(Path(sys.executable).parent / "everstep")
PLAN = Plan(Totals(3, 3000), Totals(2, 2000), Totals(0, 0), Totals(1, 1000), 10**9, {"new": 2})


def stage(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [EVERSTEP, "data", "stage", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_folder_is_staged_with_one_json_object_a_line(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", 20)

    done = stage(source, tmp_path / "out", "--json")

    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [event["event"] for event in events] == ["listing", "plan", "progress", "done"]
    assert events[1]["to_copy"] == events[1]["listed"]
    assert events[2]["files"] == events[3]["files"] == 20
    assert wrong_files(source, tmp_path / "out") == []
    assert missing_files(source, tmp_path / "out") == set()


def test_a_log_has_the_plan_and_the_end_on_standard_error(tmp_path: Path) -> None:
    done = stage(make_tree(tmp_path / "source", 6), tmp_path / "out")

    assert done.stdout == ""
    assert "6 files, 79.8 kB in the source" in done.stderr
    assert "6 files, 79.8 kB are complete" in done.stderr


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(force_terminal=True, width=120, record=True)
    monkeypatch.setattr(staging_display, "people", terminal)

    with staging_display.display() as shown:
        shown.listed(10_000)
        shown.planned(PLAN)
        shown.advanced(Progress(files=1, bytes=1500))
        terminal.print(shown._bar.get_renderable())  # type: ignore[attr-defined]
    shown.staged(PLAN)

    text = terminal.export_text()
    assert "to copy     2 files, 2.0 kB" in text
    assert "complete    1 files, 1.0 kB" in text
    assert "copying: 1 files" in text
    assert "75%" in text
    assert "1.5/2.0 kB" in text


def test_a_dry_run_prints_the_plan_and_copies_nothing(tmp_path: Path) -> None:
    done = stage(make_tree(tmp_path / "source", 6), tmp_path / "out", "--dry-run")

    assert done.returncode == 0
    assert "to copy     6 files" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("source", "destination", "words"),
    [
        ("missing", "out", ["the source 'missing' does not exist", "a .tar archive"]),
        ("ftp://host/data", "out", ["'ftp://host/data' is not supported"]),
        ("source", "source/out", ["contain each other", "outside the source"]),
        ("source/class-0", "source", ["contain each other"]),
        ("source", "file", ["is not a folder"]),
        ("file", "out", ["the source 'file' is not a tar archive"]),
    ],
)
def test_a_wrong_source_or_destination_is_named_with_a_fix(
    tmp_path: Path,
    source: str,
    destination: str,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_tree(tmp_path / "source", 7)
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)

    done = stage(source, destination)

    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "out").exists()
