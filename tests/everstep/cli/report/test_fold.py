"""A record whose older steps are folded into blocks gives the same report as all steps, and has a bounded size."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import NoReturn

import pytest

from everstep.cli.report import fold as folding
from everstep.cli.report.fold import RunFold
from everstep.cli.report.readers import FolderReader
from everstep.cli.report.report import Report, build
from everstep.cli.report.run_record import JournalEntry, RunRecord, parse_events
from tests.everstep.cli.recorded_run import STEP_SECONDS, RecordedRun

NODES = ("gpu-0", "gpu-1", "gpu-2")


def long_run() -> RecordedRun:
    """Return a run with losses, repeated steps, a join and long undisturbed stretches."""
    run = RecordedRun(nodes=NODES, total_steps=5000).form(*NODES).train(700)
    run.event("vanish", "gpu-1").wait(2.0).form("gpu-0", "gpu-2", resume_from=697).train(900)
    run.event("return", "gpu-1").wait(30).form(*NODES).train(800)
    run.event("drain", "gpu-2").wait(0.2).form("gpu-0", "gpu-1").train(400)
    # No machine event and no start of a process are close to this change.
    return run.wait(3.0).regroup("gpu-0").train(400).finish()


def fold_run(run: RecordedRun, recent: int, chunks: int = 40) -> RunRecord:
    """Return the record of a run whose journals are read in small parts while it trains."""
    fold = RunFold(recent_steps=recent)
    lines = sorted(
        (
            (line["at"], worker, json.dumps(line))
            for worker, journal in run.journals.items()
            for line in journal
        ),
        key=lambda item: float(str(item[0])),
    )
    events = parse_events("\n".join(map(json.dumps, run.events)))
    size = -(-len(lines) // chunks)
    for start in range(0, len(lines), size):
        part = lines[start : start + size]
        past_events = [event for event in events if event.at <= float(str(part[-1][0]))]
        for worker in dict.fromkeys(worker for _, worker, _ in part):
            text = "\n".join(text for _, owner, text in part if owner == worker)
            fold.add(worker, text, past_events)
    return fold.record(events, run.result)


def test_a_folded_run_has_the_same_report() -> None:
    record = fold_run(long_run(), recent=50)
    assert record.blocks

    assert_equal_reports(build(record), build(long_run().run()))


@pytest.mark.parametrize("lost", [0, 3, 200])
def test_each_step_counts_once_if_rank_0_is_lost_and_a_worker_copies_its_lines(lost: int) -> None:
    record = fold_run(run_with_copies(lost), recent=500)
    assert record.blocks

    report = build(record)

    assert (report.steps, report.total_steps) == (1500, 5000)
    assert report.goodput is not None
    assert report.goodput.redone_seconds == 0
    assert report.goodput.productive_seconds == pytest.approx(1500 * STEP_SECONDS)


def run_with_copies(lost: int, copied: int = 200) -> RecordedRun:
    """Return a run whose rank 0 is lost, and with it its newest lines; another worker copies the newest lines.

    Args:
        lost: number of lines that are lost.
        copied: number of lines that are copied.
    """
    run = RecordedRun(nodes=NODES, total_steps=5000).form(*NODES).train(700)
    lines = run.journals[run.worker("gpu-0")]
    copies = [{**line, "again": True} for line in lines[-copied:]]
    del lines[len(lines) - lost :]
    run.journals[run.worker("gpu-1")].extend(copies)
    return run.event("vanish", "gpu-0").wait(2.0).regroup("gpu-1", "gpu-2").train(800)


@pytest.mark.parametrize("lost", [0, 3])
def test_a_long_run_that_is_read_worker_by_worker_has_the_same_report(
    lost: int, tmp_path: Path
) -> None:
    run = run_with_copies(lost, copied=100).event("return", "gpu-0").wait(5).form(*NODES)
    # All machines are lost; the new workers repeat steps, and the lines are in different journals.
    run.train(400).wait(30).form("gpu-2", "gpu-1", resume_from=1650).train(700)
    write_files(run, tmp_path)

    record = FolderReader(tmp_path, tmp_path / "events.jsonl", recent_steps=50).read()

    assert record.blocks
    assert_equal_reports(build(record), build(run.run()))


def test_steps_that_are_repeated_after_they_were_folded_count_once() -> None:
    run = RecordedRun(nodes=NODES, total_steps=5000).form(*NODES).train(2000).wait(60)
    run.form("gpu-1", "gpu-2", resume_from=1130).train(1500)

    record = fold_run(run, recent=50)

    assert any(block.step > 1130 and block.generation == 1 for block in record.blocks)
    report = build(record)
    assert report.goodput is not None
    assert report.goodput.redone_seconds == pytest.approx(870 * STEP_SECONDS)
    assert_equal_reports(report, build(run.run()))


def write_files(run: RecordedRun, folder: Path) -> None:
    (folder / "journal").mkdir()
    for worker, lines in run.journals.items():
        text = "".join(f"{json.dumps(line)}\n" for line in lines)
        (folder / "journal" / f"{worker}.jsonl").write_text(text)
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, run.events)))


def assert_equal_reports(report: Report, expected: Report) -> None:
    assert report.goodput is not None
    assert expected.goodput is not None
    assert asdict(report.goodput) == pytest.approx(asdict(expected.goodput))
    assert report.images_per_second_overall == pytest.approx(expected.images_per_second_overall)
    for key in fields(Report):
        if key.name not in ("goodput", "images_per_second_overall"):
            assert getattr(report, key.name) == getattr(expected, key.name), key.name


def test_the_record_of_a_short_run_is_not_folded() -> None:
    record = fold_run(long_run(), recent=5000)

    assert not record.blocks
    assert build(record) == build(long_run().run())


def test_the_size_of_a_record_does_not_depend_on_the_number_of_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folding, "MAX_BLOCKS", 20)
    run = RecordedRun(nodes=NODES, total_steps=10**6).form(*NODES).train(6000)

    record = fold_run(run, recent=100)

    assert sum(step.count for step in record.steps) == 6000
    assert len(record.blocks) <= 20, "a month of training must fit into memory"
    # Steps are folded when there are more than 200, except for the last minute; a part of the journals has about 150.
    assert len(record.steps) - len(record.blocks) <= 200 + 150


class Unsearched(list[JournalEntry]):
    """A list that may only be extended."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("all entries are searched")


def test_the_time_to_add_an_entry_does_not_depend_on_the_number_of_entries() -> None:
    """Otherwise the total time would be quadratic: a minute for a week of restarts, 15 minutes for a month."""
    fold = RunFold()
    fold._entries = Unsearched()
    for start in (100, 200):
        times = range(start + 5, start + 100, 5)
        lines = [
            {"at": start, "kind": "start"},
            *({"at": at, "kind": "seconds", "compute": at - start} for at in times),
        ]
        fold.add("w0", "\n".join(map(json.dumps, lines)))

    assert [entry.at for entry in fold._seconds["w0"]] == [105, 195, 205, 295]
