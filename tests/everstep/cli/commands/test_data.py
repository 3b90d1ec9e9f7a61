"""`everstep data stage` with the real command."""

import json
import subprocess
import sys
from pathlib import Path

import boto3
import pytest
from rich.console import Console

from everstep.cli import staging_display
from everstep.staging.copier import CopyProgress
from everstep.staging.stage import StagingPlan
from everstep.staging.totals import Totals
from tests.everstep.staging.sources import servers
from tests.everstep.staging.trees import make_tree, missing_files, wrong_files

EVERSTEP = str(Path(sys.executable).parent / "everstep")
PLAN = StagingPlan(
    Totals(3, 3000), Totals(2, 2000), Totals(0, 0), Totals(1, 1000), 10**9, {"new": 2}
)


def stage(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [EVERSTEP, "data", "stage", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_folder_is_staged_with_one_json_object_per_line(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", 20)

    result = stage(source, tmp_path / "out", "--json")

    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert [event["event"] for event in events] == ["listing", "plan", "progress", "done"]
    assert events[1]["to_copy"] == events[1]["listed"]
    assert events[2]["files"] == events[3]["files"] == 20
    assert wrong_files(source, tmp_path / "out") == []
    assert missing_files(source, tmp_path / "out") == set()


def test_the_plan_of_a_complete_data_set_has_nothing_to_copy(tmp_path: Path) -> None:
    source = make_tree(tmp_path / "source", 6)
    stage(source, tmp_path / "out")

    result = stage(source, tmp_path / "out", "--json", "--dry-run")

    [plan] = [json.loads(line) for line in result.stdout.splitlines() if '"plan"' in line]
    assert plan["complete"] == plan["listed"]
    assert plan["to_copy"]["files"] == 0


def test_the_plan_and_the_result_are_logged_to_standard_error(tmp_path: Path) -> None:
    result = stage(make_tree(tmp_path / "source", 6), tmp_path / "out")

    assert result.stdout == ""
    assert "6 files, 79.8 kB in the source" in result.stderr
    assert "6 files, 79.8 kB are complete" in result.stderr


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Console(force_terminal=True, width=120, record=True)
    monkeypatch.setattr(staging_display, "messages", terminal)

    with staging_display.display() as display:
        display.report_listing(10_000)
        display.report_plan(PLAN)
        display.report_progress(CopyProgress(files=1, bytes=1500))
        terminal.print(display._bar.get_renderable())  # type: ignore[attr-defined]
    display.report_end(PLAN)

    text = terminal.export_text()
    assert "to copy     2 files, 2.0 kB" in text
    assert "complete    1 file, 1.0 kB" in text
    assert "copying: 1 file" in text
    assert "75%" in text
    assert "1.5/2.0 kB" in text


def test_a_dry_run_prints_the_plan_and_copies_nothing(tmp_path: Path) -> None:
    result = stage(make_tree(tmp_path / "source", 6), tmp_path / "out", "--dry-run")

    assert result.returncode == 0
    assert "to copy     6 files" in result.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_validation_images_are_arranged_by_a_table_of_annotations(tmp_path: Path) -> None:
    image = "ILSVRC2012_val_00000001"
    (tmp_path / "val").mkdir()
    (tmp_path / "val" / f"{image}.JPEG").write_text("image")
    table = tmp_path / "LOC_val_solution.csv"
    table.write_text(f"ImageId,PredictionString\n{image},n01440764 1 2 3 4\n")

    result = stage(tmp_path / "val", tmp_path / "out", "--annotations", table)

    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out/n01440764" / f"{image}.JPEG").read_text() == "image"


def test_a_bucket_on_another_s3_server_is_staged_and_a_missing_bucket_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", servers.KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", servers.SECRET)
    with servers.moto() as address:
        client = boto3.client("s3", endpoint_url=address, region_name="us-east-1")
        client.create_bucket(Bucket="data")
        client.put_object(Bucket="data", Key="set/file", Body=b"content")

        result = stage("s3://data/set", tmp_path / "out", "--endpoint", address)
        missing_bucket_result = stage("s3://none/set", tmp_path / "out", "--endpoint", address)

    assert result.returncode == 0, result.stderr
    assert (tmp_path / "out/file").read_bytes() == b"content"
    assert missing_bucket_result.returncode == 1
    assert "error: the bucket 'none' does not exist" in missing_bucket_result.stderr


@pytest.mark.parametrize(
    ("source", "destination", "parts"),
    [
        ("missing", "out", ["the source 'missing' does not exist", "a .tar archive"]),
        ("source", "source/out", ["overlap", "outside the source"]),
        ("source", "file", ["is not a folder"]),
        ("~no-such-user/data", "out", ["the source '~no-such-user/data' does not exist"]),
        ("source", "~no-such-user/out", ["there is no user ~no-such-user", "absolute path"]),
    ],
)
def test_a_wrong_source_or_destination_is_named_with_a_fix(
    tmp_path: Path,
    source: str,
    destination: str,
    parts: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_tree(tmp_path / "source", 7)
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)

    result = stage(source, destination)

    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    for part in parts:
        assert part in result.stderr
    assert not (tmp_path / "out").exists()
