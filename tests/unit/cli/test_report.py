"""What a report says of a training, told as stories and as properties that hold for all of them."""

import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.cli.report import Recovery, Report, WorldSize, build
from everstep.cli.run import Run, assemble, parse_journal
from everstep.cli.seconds import Goodput, RestartEstimate, WorkerSeconds
from tests.unit.cli.story import GLOBAL_BATCH, STEP_SECONDS, Story

ALL = ("gpu-0", "gpu-1", "gpu-2")


def test_a_run_that_has_not_begun_reports_nothing_and_does_not_fail():
    report = build(Run())

    assert (report.steps, report.events, report.accuracy) == (0, (), None)
    assert report.images_per_second is None


def test_a_drain_costs_the_time_until_the_survivors_finish_their_next_step(story):
    story.form(*ALL).train(10).event("drain", "gpu-1").wait(4.0).form("gpu-0", "gpu-2").train(5)

    (event,) = build(story.run()).events

    assert event.seconds_to_next_step == pytest.approx(4.0 + STEP_SECONDS)
    assert event.steps_lost == 0


def test_a_step_that_the_old_group_still_finished_is_not_the_recovery(story):
    story.form(*ALL).train(10).event("drain", "gpu-1").train(2).wait(3.0)
    story.form("gpu-0", "gpu-2").train(5)

    (event,) = build(story.run()).events

    assert event.seconds_to_next_step == pytest.approx(3.0 + 3 * STEP_SECONDS)
    assert event.steps_lost == 0, "those two steps counted: the new group went on after them"


def test_steps_that_are_done_again_are_lost(story):
    story.form(*ALL).train(10).event("vanish", "gpu-0").wait(9.0)
    story.form("gpu-1", "gpu-2", resume_from=7).train(5)

    (event,) = build(story.run()).events

    assert event.steps_lost == 3
    assert build(story.run()).steps == 12, "the highest step, however often it was done"


def test_an_event_without_an_answer_yet_says_so(story):
    story.form(*ALL).train(10).event("vanish", "gpu-0").wait(9.0)

    (event,) = build(story.run()).events

    assert event.seconds_to_next_step is None
    assert event.steps_lost is None


def test_a_node_without_a_worker_costs_no_more_than_the_next_step(story):
    story.form("gpu-0", "gpu-1").train(10).event("drain", "gpu-2").train(3).wait(5.0)
    story.form("gpu-0", "gpu-1").train(3)

    (event,) = build(story.run()).events

    assert event.seconds_to_next_step == pytest.approx(STEP_SECONDS)


def test_a_node_that_was_frozen_for_a_moment_is_not_blamed_for_a_later_change(story):
    story.form(*ALL).train(10).event("freeze", "gpu-1").wait(1.0).event("thaw", "gpu-1").train(5)
    story.event("drain", "gpu-2").wait(4.0).form("gpu-0", "gpu-1").train(5)

    freeze, _, drain = build(story.run()).events

    assert freeze.seconds_to_next_step == pytest.approx(1.0 + STEP_SECONDS)
    assert drain.seconds_to_next_step == pytest.approx(4.0 + STEP_SECONDS)


def test_a_spot_machine_that_is_reclaimed_counts_once_from_its_notice(story):
    story.form("gpu-0", "gpu-1", "gpu-2").train(20).event("notice", "gpu-1")
    story.wait(1.5).form("gpu-0", "gpu-2").train(4).event("reclaim", "gpu-1").train(5)

    (notice,) = build(story.run()).events

    assert (notice.kind, notice.node, notice.steps_lost) == ("notice", "gpu-1", 0)
    assert notice.seconds_to_next_step == pytest.approx(1.5 + STEP_SECONDS)


def test_a_machine_in_a_reclaimed_ones_place_joins_as_one_that_came_back(story):
    story.form("gpu-0", "gpu-1", "gpu-2").train(20).event("notice", "gpu-1")
    story.event("add", "gpu-3").wait(1.0).form("gpu-0", "gpu-2").train(10).wait(2.0)
    story.replace("gpu-1", "gpu-3").form("gpu-0", "gpu-3", "gpu-2").train(5)

    added = build(story.run()).events[-1]

    assert added.kind == "add"
    assert added.seconds_to_next_step == pytest.approx(2.0 + STEP_SECONDS)


def test_a_return_costs_the_others_the_pause_in_which_the_newcomer_is_taken_in(drilled):
    back = [event for event in build(drilled.run()).events if event.kind == "return"]

    assert [event.node for event in back] == ["gpu-1", "gpu-0"]
    for event in back:
        assert event.seconds_to_next_step == pytest.approx(2.5 + STEP_SECONDS)
        assert event.joined_at == pytest.approx(event.at + event.seconds_to_join)
        assert event.steps_lost == 0


def test_a_node_that_came_back_and_never_joined_has_no_joining_time(story):
    story.form(*ALL).train(5).event("drain", "gpu-1").wait(2).form("gpu-0", "gpu-2").train(5)
    story.event("return", "gpu-1").train(5)

    _, back = build(story.run()).events

    assert back.joined_at is None
    assert back.seconds_to_next_step == pytest.approx(STEP_SECONDS)


def test_what_was_done_to_machines_before_the_training_is_not_its_business(story):
    story.event("drain", "gpu-1").event("return", "gpu-1").wait(60).form(*ALL).train(5)

    assert build(story.run()).events == ()


def test_the_size_of_the_group_is_told_by_its_changes(drilled):
    sizes = [size.world_size for size in build(drilled.run()).world_sizes]

    assert sizes == [3, 2, 3, 2, 3]


def test_throughput_is_that_of_the_median_step_and_beside_it_that_of_the_whole_run(drilled):
    report = build(drilled.run())

    assert report.images_per_second == pytest.approx(GLOBAL_BATCH / STEP_SECONDS)
    assert report.images_per_second_overall == pytest.approx(
        300 * GLOBAL_BATCH / report.duration_seconds
    ), "repeated steps are work done twice, and count once"


def test_accuracy_is_the_last_evaluation_until_there_is_a_result(story):
    story.form(*ALL).train(5).write("gpu-0", "evaluation", step=5, accuracy=0.8)
    assert build(story.run()).accuracy == 0.8

    story.finish(0.9)
    assert build(story.run()).accuracy == 0.9


def test_half_a_line_of_a_killed_writer_is_passed_over():
    text = '{"at": 1.0, "kind": "step", "step": 1}\n{"at": 2.0, "ki'

    assert [line.at for line in parse_journal("w", text)] == [1.0]


@settings(deadline=None)  # a busy machine is no fault
@given(st.text())
def test_no_journal_whatever_it_holds_makes_the_report_fail(text):
    json.dumps(build(assemble({"w": text}, text, text)).to_json())


@settings(deadline=None)  # a busy machine is no fault
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["drain", "vanish", "freeze", "cut", "return", "thaw", "mend", "wait"]),
            st.sampled_from(ALL),
            st.integers(0, 5),
            st.integers(0, 4),
        ),
        max_size=12,
    )
)
def test_whatever_happens_recoveries_are_never_negative_and_no_more_is_lost_than_was_done(acts):
    story = Story().form(*ALL).train(3)
    home = set(ALL)
    for kind, node, steps, back in acts:
        if kind != "wait":
            story.event(kind, node)
            home = home - {node} if kind in ("drain", "vanish") else home | {node}
        story.wait(1.0)
        if home:
            story.form(*sorted(home), resume_from=max(story.step - back, 0)).train(steps)

    report = build(story.run())

    assert len(report.events) == len(story.events)
    for event in report.events:
        assert event.seconds_to_next_step is None or event.seconds_to_next_step > 0
        assert event.steps_lost is None or 0 <= event.steps_lost <= report.steps
        assert event.joined_at is None or event.joined_at > event.at


@pytest.mark.parametrize(
    "kind", [Report, Recovery, WorldSize, Goodput, WorkerSeconds, RestartEstimate]
)
def test_every_key_of_the_report_is_documented(kind):
    documented = Path("docs/report.md").read_text()

    for key in fields(kind):
        assert f"`{key.name}`" in documented, f"docs/report.md does not define {key.name}"
