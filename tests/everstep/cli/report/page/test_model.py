"""Content of the page: every kind of run has a page, which agrees with the report."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.cli.report.incidents import CapacityEffect, Incident
from everstep.cli.report.money import Billing
from everstep.cli.report.page.model import ReportPage, build_page
from everstep.cli.report.page.render import render
from everstep.cli.report.page.verdict import verdict
from everstep.cli.report.run_record import RunRecord, assemble
from everstep.cli.report.status import SILENT_SECONDS, Status
from tests.effort import examples
from tests.everstep.cli.recorded_run import RecordedRun
from tests.everstep.cli.report.test_money import RATES

ALL_NODES = ("gpu-0", "gpu-1", "gpu-2")


def page_of(
    recorded_run: RecordedRun, seconds_later: float = 1.0, billing: Billing | None = None
) -> ReportPage:
    return build_page(recorded_run.run(), recorded_run.now + seconds_later, billing)


def only_incident(page: ReportPage) -> Incident:
    (incident,) = page.incidents
    return incident


def test_a_run_that_has_not_started_has_a_page() -> None:
    page = build_page(RunRecord(), 1000.0)

    assert (page.status, page.lanes, page.incidents) == (Status.NOT_STARTED, (), ())
    assert verdict(page).headline == "No training yet"


def test_a_finished_run_survived_its_losses(drill_run: RecordedRun) -> None:
    page = page_of(drill_run, billing=Billing(billed=False, reason="it ran here"))

    assert page.status is Status.FINISHED
    assert verdict(page).headline == "Training survived both losses of workers"
    text = " ".join(verdict(page).sentences)
    assert "300 of 300 steps" in text
    assert "at most 11.5 s after a loss, and 4 steps were repeated" in text
    assert "Nothing was billed: it ran here." in text


@pytest.mark.parametrize("kind", ["drain", "vanish", "notice"])
def test_a_machine_without_a_worker_does_not_count_as_a_loss(
    recorded_run: RecordedRun, kind: str
) -> None:
    recorded_run.form(*ALL_NODES).train(50).event(kind, "system-0").train(50).finish()

    page = page_of(recorded_run)

    assert verdict(page).headline == "Training finished without a loss of capacity"
    incident = only_incident(page)
    assert incident.effect is CapacityEffect.NOTE
    assert incident.cause.endswith("; no worker of the group ran there.")
    assert "its worker" not in incident.cause


def test_an_unfinished_run_that_writes_is_training(recorded_run: RecordedRun) -> None:
    page = page_of(recorded_run.form(*ALL_NODES).train(50))

    assert page.status is Status.TRAINING
    assert verdict(page).headline == "Training has not been disrupted so far"


def test_a_run_without_a_new_group_is_regrouping(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(50).event("vanish", "gpu-1").wait(3.0)

    page = page_of(recorded_run)

    assert page.status is Status.REGROUPING
    assert only_incident(page).recovered is False
    assert verdict(page).headline == "Training has survived 0 of 1 loss so far"


def test_a_run_that_no_longer_writes_has_stopped(recorded_run: RecordedRun) -> None:
    page = page_of(recorded_run.form(*ALL_NODES).train(50), seconds_later=SILENT_SECONDS + 10)

    assert page.status is Status.STOPPED
    assert page.end == recorded_run.now, "the silence after the last entry does not count"
    assert verdict(page).headline == "Training stopped at step 50 of 300"
    assert "The last journal entry is 2:10 old." in verdict(page).sentences


def test_a_run_that_has_stopped_may_have_an_unknown_number_of_steps() -> None:
    recorded_run = RecordedRun(total_steps=0).form(*ALL_NODES).train(50)

    page = page_of(recorded_run, seconds_later=SILENT_SECONDS + 10)

    assert verdict(page).headline == "Training stopped at step 50"


def test_the_machines_of_a_run_that_has_stopped_are_counted_until_its_timeline_ends(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(50)
    billing = Billing(billed=True, rates=RATES)

    now, later = (page_of(recorded_run, seconds, billing).money for seconds in (0.0, 3601.0))

    assert now is not None
    assert later is not None
    assert later.machine_hours == pytest.approx(now.machine_hours)


def test_a_change_of_the_group_without_a_machine_event_is_an_incident(
    recorded_run: RecordedRun,
) -> None:
    """Clouds, for example, record no machine events."""
    recorded_run.form(*ALL_NODES).train(20)
    recorded_run.write("gpu-0", "lost", step=20, reason="fashion-worker-2 does not respond")
    recorded_run.wait(4.0).regroup("gpu-0", "gpu-1").train(20)

    incident = only_incident(page_of(recorded_run))

    assert incident.effect is CapacityEffect.LOSS
    assert incident.cause == "fashion-worker-2 was lost without notice."
    assert incident.evidence == "fashion-worker-2 does not respond"
    assert incident.node == "gpu-2", "its mark is on the node's lane"
    assert incident.seconds_to_next_step == pytest.approx(4.5)


def test_a_machine_event_and_its_change_of_the_group_are_one_incident(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(20).event("vanish", "gpu-2")
    recorded_run.write("gpu-0", "lost", step=20, reason="worker 2 does not respond")
    recorded_run.wait(4.0).form("gpu-0", "gpu-1").train(20)

    incident = only_incident(page_of(recorded_run))

    assert (incident.kind, incident.subject) == ("vanish", "gpu-2")
    assert incident.evidence == "worker 2 does not respond"


def test_the_records_of_workers_are_shown(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(5)
    recorded_run.write("gpu-0", "checkpoint_failed", step=5, reason="No space left on device")

    incident = only_incident(page_of(recorded_run.train(5)))

    assert (incident.effect, incident.kind) == (CapacityEffect.NOTE, "save failed")
    assert incident.cause == "The checkpoint of step 5 was not written."
    assert incident.evidence == "No space left on device"


def test_the_cost_is_part_of_the_verdict(drill_run: RecordedRun) -> None:
    billed_page = page_of(drill_run, billing=Billing(billed=True, rates=RATES))
    twin_page = page_of(drill_run, billing=Billing(billed=False, reason="a twin", rates=RATES))

    assert "less than on demand." in verdict(billed_page).sentences[-1]
    assert verdict(billed_page).sentences[-1].startswith("It cost about $")
    assert verdict(twin_page).sentences[-1].startswith("In the cloud it would have cost $")


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "1e400", "true", '"7"', "null", "1" + "0" * 400]
)
def test_a_line_with_an_unusable_number_is_ignored(drill_run: RecordedRun, value: str) -> None:
    lines = (
        f'{{"at": {value}, "kind": "step", "step": 1, "loss": 1.0}}\n'
        f'{{"at": 1790000001.0, "kind": "step", "step": {value}, "seconds": {value}, "loss": {value}}}\n'
        f'{{"at": 1790000002.0, "kind": "evaluation", "accuracy": {value}}}\n'
    )
    texts = {
        worker: "".join(json.dumps(line) + "\n" for line in entries)
        for worker, entries in drill_run.journals.items()
    }

    page = build_page(assemble({**texts, "other": lines}), drill_run.now)

    assert page.report.steps == 300
    assert len(page.losses) == len(build_page(assemble(texts), drill_run.now).losses)
    assert [accuracy for _, accuracy in page.evaluations] == [0.8912]
    assert render(page)


# --- properties ---------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
KEYS = ("node", "job", "step", "generation", "world_size", "rank", "seconds", "loss", "reason",
        "total_steps", "accuracy", "images", "again", "epoch", "mode", "compute")  # fmt: skip
KINDS = ("start", "generation", "step", "lost", "leave", "evaluation", "seconds", "finish",
         "restore", "lost_lines", "checkpoint")  # fmt: skip
FOREIGN_ENTRIES = st.builds(
    lambda at, kind, values: {"at": at, "kind": kind, **values},
    st.floats(),
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6),
)
EVENTS = st.builds(
    lambda at, kind, node: {"at": at, "kind": kind, "node": node},
    st.floats(0, 400).map(lambda after: 1_790_000_000.0 + after),
    st.sampled_from(("drain", "vanish", "return", "notice", "freeze", "thaw", "add", "unknown")),
    st.sampled_from((*ALL_NODES, "gpu-9", "<b>")),
)


@settings(max_examples=examples(40))
@given(st.lists(FOREIGN_ENTRIES, max_size=8), st.lists(EVENTS, max_size=8), st.text(), st.data())
def test_every_journal_has_a_report_and_a_page(
    foreign_entries: list[dict[str, object]],
    events: list[dict[str, object]],
    other_text: str,
    data: st.DataObject,
) -> None:
    """Files may have torn lines, lines of other programs, events in any order, and text that is not JSON."""
    recorded_run = RecordedRun().form(*ALL_NODES).train(8).wait(2.0).form("gpu-0", "gpu-1").train(4)
    texts = {
        worker: "".join(json.dumps(line) + "\n" for line in lines)
        for worker, lines in recorded_run.journals.items()
    }
    texts = {worker: text[data.draw(st.integers(0, 40)) :] for worker, text in texts.items()}
    texts = {worker: text[: data.draw(st.integers(0, len(text)))] for worker, text in texts.items()}
    texts["other"] = "".join(json.dumps(line) + "\n" for line in foreign_entries) + '{"at": 17'
    texts["text"] = other_text

    event_lines = "".join(json.dumps(event) + "\n" for event in events)
    run = assemble(
        texts, event_lines + other_text, data.draw(st.sampled_from((other_text, "{}", "[1]")))
    )
    page = build_page(run, recorded_run.now + 5)

    assert json.loads(json.dumps(page.report.to_json()))["steps"] == page.report.steps
    assert page.end >= page.start
    assert list(page.incidents) == sorted(page.incidents, key=lambda incident: incident.at)
    for lane in page.lanes:
        assert sum(lane.seconds.values()) == pytest.approx(page.seconds), "every second has a state"
    assert render(page).startswith("<!doctype html>")
