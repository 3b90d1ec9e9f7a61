"""A folded record gives the same report as the whole one, and its size does not depend on the steps."""

import json

import pytest

from everstep.cli.report.fold import MAX_BLOCKS, RunFold
from everstep.cli.report.report import Report, build
from everstep.cli.report.run_record import RunRecord, parse_events
from tests.everstep.cli.recorded_run import RecordedRun

NODES = ("gpu-0", "gpu-1", "gpu-2")


def long_run() -> RecordedRun:
    """Return a run with losses, a repeated step, a join and long undisturbed stretches."""
    run = RecordedRun(nodes=NODES, total_steps=5000).form(*NODES).train(700)
    run.event("vanish", "gpu-1").wait(2.0).form("gpu-0", "gpu-2", resume_from=697).train(900)
    run.event("return", "gpu-1").wait(30).form(*NODES).train(800)
    run.event("drain", "gpu-2").wait(0.2).form("gpu-0", "gpu-1").train(400)
    return run.finish()


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
    complete_report, folded_report = build(long_run().run()), build(fold_run(long_run(), recent=50))

    for name in Report.__dataclass_fields__:
        if name in ("goodput", "images_per_second", "images_per_second_overall"):
            continue
        assert getattr(folded_report, name) == getattr(complete_report, name), name
    assert complete_report.goodput is not None
    assert folded_report.goodput is not None
    assert abs(folded_report.goodput.share - complete_report.goodput.share) < 1e-6
    assert abs(folded_report.goodput.redone_seconds - complete_report.goodput.redone_seconds) < 1e-6
    assert complete_report.images_per_second == folded_report.images_per_second, (
        "every step took the same time"
    )
    assert complete_report.images_per_second_overall is not None
    assert folded_report.images_per_second_overall is not None
    assert (
        abs(folded_report.images_per_second_overall / complete_report.images_per_second_overall - 1)
        < 1e-9
    )


def test_lines_that_a_worker_copies_after_the_loss_of_rank_0_do_not_count() -> None:
    """Rank 0's machine is lost, and with it `lost` of its lines; another worker has recorded all of the last 200."""
    expected_report = build(fold_run(run_with_copies(copied=0, lost=0), recent=50))

    for lost in (0, 3, 200):
        report = build(fold_run(run_with_copies(copied=200, lost=lost), recent=500))
        assert (report.steps, report.total_steps) == (1500, 5000)
        assert report.goodput is not None
        assert expected_report.goodput is not None
        assert report.goodput.redone_seconds == 0
        assert report.goodput.productive_seconds == pytest.approx(
            expected_report.goodput.productive_seconds
        )


def run_with_copies(copied: int, lost: int) -> RecordedRun:
    """Return a run whose rank 0 is lost with some of its lines, and whose newest lines another worker copies."""
    run = RecordedRun(nodes=NODES, total_steps=5000).form(*NODES).train(700)
    lines = run.journals[run.worker("gpu-0")]
    copies = [{**line, "again": True} for line in lines[len(lines) - copied :]]
    del lines[len(lines) - lost :]
    run.journals[run.worker("gpu-1")].extend(copies)
    return run.event("vanish", "gpu-0").wait(2.0).regroup("gpu-1", "gpu-2").train(800)


def test_the_record_of_a_short_run_is_not_folded() -> None:
    record = fold_run(long_run(), recent=5000)

    assert not record.blocks
    assert build(record) == build(long_run().run())


def test_the_size_of_a_record_does_not_depend_on_the_number_of_steps() -> None:
    run = RecordedRun(nodes=NODES, total_steps=10**6).form(*NODES)
    run.train(60_000)

    record = fold_run(run, recent=100, chunks=400)

    assert sum(step.count for step in record.steps) == 60_000
    assert len(record.steps) < MAX_BLOCKS + 400, "a month of training must fit into memory"
