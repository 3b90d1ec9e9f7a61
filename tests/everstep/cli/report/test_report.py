"""Reports of recorded runs: examples, and properties of all runs."""

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.report.goodput import Goodput, RestartEstimate, WorkerSeconds
from everstep.cli.report.money import Money, MoveSpending, PoolSpending, TrafficSpending
from everstep.cli.report.moves import MoveCost
from everstep.cli.report.report import EventRecovery, Report, WorldSize, build
from everstep.cli.report.run_record import RunRecord, parse_journal
from everstep.cli.report.stalls import LongWait
from tests.everstep.cli.recorded_run import GLOBAL_BATCH, STEP_SECONDS, RecordedRun

ALL_NODES = ("gpu-0", "gpu-1", "gpu-2")


def test_a_run_that_has_not_started_has_an_empty_report() -> None:
    report = build(RunRecord())

    assert (report.steps, report.events, report.accuracy) == (0, (), None)
    assert report.images_per_second is None


def test_a_drain_costs_the_time_until_the_survivors_finish_their_next_step(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("drain", "gpu-1").wait(4.0).form(
        "gpu-0", "gpu-2"
    ).train(5)

    (event,) = build(recorded_run.run()).events

    assert event.seconds_to_next_step == pytest.approx(4.0 + STEP_SECONDS)
    assert event.steps_lost == 0


def test_a_step_that_the_old_group_finishes_is_not_the_recovery(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("drain", "gpu-1").train(2).wait(3.0)
    recorded_run.form("gpu-0", "gpu-2").train(5)

    (event,) = build(recorded_run.run()).events

    assert event.seconds_to_next_step == pytest.approx(3.0 + 3 * STEP_SECONDS)
    assert event.steps_lost == 0, "those two steps count: the new group continued after them"


def test_repeated_steps_are_lost_steps(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("vanish", "gpu-0").wait(9.0)
    recorded_run.form("gpu-1", "gpu-2", resume_from=7).train(5)

    (event,) = build(recorded_run.run()).events

    assert event.steps_lost == 3
    assert build(recorded_run.run()).steps == 12, "the highest step counts once"


def test_an_event_without_a_recovery_has_no_values(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("vanish", "gpu-0").wait(9.0)

    (event,) = build(recorded_run.run()).events

    assert event.seconds_to_next_step is None
    assert event.steps_lost is None


def test_a_node_without_a_worker_costs_no_more_than_the_next_step(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form("gpu-0", "gpu-1").train(10).event("drain", "gpu-2").train(3).wait(5.0)
    recorded_run.form("gpu-0", "gpu-1").train(3)

    (event,) = build(recorded_run.run()).events

    assert event.seconds_to_next_step == pytest.approx(STEP_SECONDS)


def test_a_short_freeze_is_not_the_cause_of_a_later_change(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("freeze", "gpu-1").wait(1.0).event(
        "thaw", "gpu-1"
    ).train(5)
    recorded_run.event("drain", "gpu-2").wait(4.0).form("gpu-0", "gpu-1").train(5)

    freeze, _, drain = build(recorded_run.run()).events

    assert freeze.seconds_to_next_step == pytest.approx(1.0 + STEP_SECONDS)
    assert drain.seconds_to_next_step == pytest.approx(4.0 + STEP_SECONDS)


def test_a_reclaimed_spot_machine_counts_once_from_its_notice(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0", "gpu-1", "gpu-2").train(20).event("notice", "gpu-1")
    recorded_run.wait(1.5).form("gpu-0", "gpu-2").train(4).event("reclaim", "gpu-1").train(5)

    (notice,) = build(recorded_run.run()).events

    assert (notice.kind, notice.node, notice.steps_lost) == ("notice", "gpu-1", 0)
    assert notice.seconds_to_next_step == pytest.approx(1.5 + STEP_SECONDS)


def test_a_reclaim_without_a_notice_counts_although_a_later_machine_of_the_name_has_a_notice(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("reclaim", "gpu-1")
    recorded_run.form("gpu-0", "gpu-2").train(5).event("return", "gpu-1")
    recorded_run.form(*ALL_NODES).train(5).event("notice", "gpu-1").train(1)
    recorded_run.event("reclaim", "gpu-1").form("gpu-0", "gpu-2").train(5)
    recorded_run.event("return", "gpu-1").form(*ALL_NODES).train(5).event("reclaim", "gpu-1")

    kinds = [event.kind for event in build(recorded_run.run()).events]

    assert kinds == ["reclaim", "return", "notice", "return", "reclaim"]


def test_the_replacement_of_a_reclaimed_machine_counts_as_its_return(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form("gpu-0", "gpu-1", "gpu-2").train(20).event("notice", "gpu-1")
    recorded_run.event("add", "gpu-3").wait(1.0).form("gpu-0", "gpu-2").train(10).wait(2.0)
    recorded_run.replace("gpu-1", "gpu-3").form("gpu-0", "gpu-3", "gpu-2").train(5)

    addition = build(recorded_run.run()).events[-1]

    assert addition.kind == "add"
    assert addition.seconds_to_next_step == pytest.approx(2.0 + STEP_SECONDS)


def test_the_cost_of_a_return_is_the_pause_while_the_worker_joins(
    drill_run: RecordedRun,
) -> None:
    returns = [event for event in build(drill_run.run()).events if event.kind == "return"]

    assert [event.node for event in returns] == ["gpu-1", "gpu-0"]
    for event in returns:
        assert event.seconds_to_next_step == pytest.approx(2.5 + STEP_SECONDS)
        assert event.joined_at is not None
        assert event.seconds_to_join == pytest.approx(event.joined_at - event.at)
        assert event.steps_lost == 0


def test_a_node_that_came_back_and_never_joined_has_no_joining_time(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(5).event("drain", "gpu-1").wait(2).form(
        "gpu-0", "gpu-2"
    ).train(5)
    recorded_run.event("return", "gpu-1").train(5)

    _, return_event = build(recorded_run.run()).events

    assert return_event.joined_at is None
    assert return_event.seconds_to_next_step == pytest.approx(STEP_SECONDS)


def test_events_before_the_training_are_ignored(recorded_run: RecordedRun) -> None:
    recorded_run.event("drain", "gpu-1").event("return", "gpu-1").wait(60).form(*ALL_NODES).train(5)

    assert build(recorded_run.run()).events == ()


def test_each_change_of_the_group_is_recorded_with_its_size(drill_run: RecordedRun) -> None:
    sizes = [size.world_size for size in build(drill_run.run()).world_sizes]

    assert sizes == [3, 2, 3, 2, 3]


def test_throughput_is_reported_for_the_median_step_and_for_the_whole_run(
    drill_run: RecordedRun,
) -> None:
    report = build(drill_run.run())

    assert report.images_per_second == pytest.approx(GLOBAL_BATCH / STEP_SECONDS)
    assert report.images_per_second_overall == pytest.approx(
        300 * GLOBAL_BATCH / report.duration_seconds
    ), "repeated steps count once"


def test_the_accuracy_comes_from_the_last_evaluation_until_there_is_a_result(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(5).write("gpu-0", "evaluation", step=5, accuracy=0.8)
    assert build(recorded_run.run()).accuracy == 0.8

    recorded_run.finish(0.9)
    assert build(recorded_run.run()).accuracy == 0.9


def test_an_incomplete_last_line_is_ignored() -> None:
    text = '{"at": 1.0, "kind": "step", "step": 1}\n{"at": 2.0, "ki'

    assert [line.at for line in parse_journal("w", text)] == [1.0]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["drain", "vanish", "freeze", "cut", "return", "thaw", "reconnect", "wait"]
            ),
            st.sampled_from(ALL_NODES),
            st.integers(0, 5),
            st.integers(0, 4),
        ),
        max_size=12,
    )
)
def test_recoveries_are_never_negative_and_lost_steps_never_exceed_the_steps_done(
    operations: list[tuple[str, str, int, int]],
) -> None:
    recorded_run = RecordedRun().form(*ALL_NODES).train(3)
    present_nodes = set(ALL_NODES)
    for kind, node, steps, repeated_steps in operations:
        if kind != "wait":
            recorded_run.event(kind, node)
            present_nodes = (
                present_nodes - {node} if kind in ("drain", "vanish") else present_nodes | {node}
            )
        recorded_run.wait(1.0)
        if present_nodes:
            recorded_run.form(
                *sorted(present_nodes), resume_from=max(recorded_run.step - repeated_steps, 0)
            ).train(steps)

    report = build(recorded_run.run())

    assert len(report.events) == len(recorded_run.events)
    for event in report.events:
        assert event.seconds_to_next_step is None or event.seconds_to_next_step > 0
        assert event.steps_lost is None or 0 <= event.steps_lost <= report.steps
        assert event.joined_at is None or event.joined_at > event.at


@pytest.mark.parametrize(
    "kind",
    [
        Report,
        EventRecovery,
        WorldSize,
        Goodput,
        WorkerSeconds,
        RestartEstimate,
        MoveCost,
        LongWait,
        Money,
        PoolSpending,
        MoveSpending,
        TrafficSpending,
    ],
)
def test_every_key_of_the_report_is_documented(kind: type) -> None:
    page = Path("docs/report.md").read_text()

    for key in fields(kind):
        if key.name == "notes":
            continue  # sentences for the page of a run, not values
        assert f"`{key.name}`" in page, f"docs/report.md does not define {key.name}"
