"""Timelines of nodes and their rendering."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.report import report as reports
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.screens import GLYPHS, follow_screen, report_screen
from everstep.cli.report.timeline import NodeState, Segment, node_timelines, span, time_cells
from tests.everstep.cli.recorded_run import RecordedRun, drill
from tests.everstep.cli.report.terminal import terminal_text

ALL_NODES = ("gpu-0", "gpu-1", "gpu-2")


def states(recorded_run: RecordedRun, node: str) -> list[NodeState]:
    timelines = node_timelines(recorded_run.run(), recorded_run.now)
    segments = next(timeline.segments for timeline in timelines if timeline.node == node)
    return [segment.state for segment in segments]


def test_a_drained_node_is_gone_until_its_return_and_regrouping_until_its_worker_trains(
    drill_run: RecordedRun,
) -> None:
    assert states(drill_run, "gpu-1")[:5] == [
        NodeState.REGROUPING,
        NodeState.TRAINING,
        NodeState.GONE,
        NodeState.REGROUPING,
        NodeState.TRAINING,
    ]


def test_a_survivor_is_regrouping_after_each_change_and_never_gone(drill_run: RecordedRun) -> None:
    node_states = states(drill_run, "gpu-2")

    assert NodeState.GONE not in node_states
    assert node_states.count(NodeState.REGROUPING) == 5, "the start, two losses and two arrivals"


def test_survivors_show_as_regrouping_from_the_time_of_the_loss(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("vanish", "gpu-0").wait(5.0)

    assert states(recorded_run, "gpu-1")[-1] is NodeState.REGROUPING
    assert states(recorded_run, "gpu-0")[-1] is NodeState.GONE


def test_a_thawed_node_that_kept_its_worker_continues_training(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("freeze", "gpu-1").wait(1.0).event(
        "thaw", "gpu-1"
    ).train(5)

    assert states(recorded_run, "gpu-1")[-2:] == [NodeState.GONE, NodeState.TRAINING]


def test_a_machine_shows_as_training_until_its_notice_even_after_its_worker_has_moved(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("notice", "gpu-1").wait(1.0).form(
        "gpu-0", "gpu-2"
    ).train(5)
    recorded_run.replace("gpu-1", "gpu-3").form("gpu-0", "gpu-3", "gpu-2").train(5)

    assert states(recorded_run, "gpu-1") == [
        NodeState.REGROUPING,
        NodeState.TRAINING,
        NodeState.GONE,
    ]
    assert states(recorded_run, "gpu-3")[-1] is NodeState.TRAINING


@pytest.mark.parametrize("size", [-1, -5, -1e14, 0])
def test_a_damaged_number_of_workers_is_drawn_as_one_or_none(
    size: float, recorded_run: RecordedRun
) -> None:
    recorded_run.form(*ALL_NODES).train(10)
    worker = recorded_run.worker(ALL_NODES[0])
    for entry in recorded_run.journals[worker][-3:]:
        entry["world_size"] = size
    run = recorded_run.run()

    report = reports.build(run)

    assert report.world_sizes[-1].world_size in (0, 1)
    for screen in (report_screen, follow_screen):
        assert "workers" in terminal_text(screen(report, run, recorded_run.now, 100))


def test_a_node_lost_without_an_event_shows_as_gone(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(10).wait(8.0).form("gpu-0", "gpu-2").train(10)

    assert states(recorded_run, "gpu-1")[-2:] == [NodeState.TRAINING, NodeState.GONE]
    assert states(recorded_run, "gpu-0")[-2:] == [NodeState.REGROUPING, NodeState.TRAINING]


def test_a_node_that_was_lost_stays_gone_in_later_pauses(recorded_run: RecordedRun) -> None:
    """Otherwise each replaced machine of a cloud would be billed in every later pause, such as a night."""
    recorded_run.form(*ALL_NODES).train(10).wait(8.0).form("gpu-0", "gpu-2").train(10)
    recorded_run.wait(3600.0).form("gpu-0", "gpu-2").train(10)

    assert states(recorded_run, "gpu-1")[-2:] == [NodeState.TRAINING, NodeState.GONE]
    assert NodeState.REGROUPING in states(recorded_run, "gpu-2")[-2:]


def test_a_node_whose_worker_has_left_is_gone_although_no_group_follows(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(10)
    recorded_run.write("gpu-1", "leave", step=10, reason="pod deleted")
    recorded_run.wait(5.0)

    assert states(recorded_run, "gpu-1") == [
        NodeState.REGROUPING,
        NodeState.TRAINING,
        NodeState.GONE,
    ]
    assert states(recorded_run, "gpu-0")[-1] is not NodeState.GONE


def test_a_machine_that_returns_after_its_worker_has_left_awaits_the_next_worker(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form(*ALL_NODES).train(10).event("drain", "gpu-1")
    recorded_run.write("gpu-1", "leave", step=10, reason="pod deleted")
    recorded_run.wait(5.0).event("return", "gpu-1").wait(5.0)

    assert states(recorded_run, "gpu-1")[-2:] == [NodeState.GONE, NodeState.REGROUPING]


def test_a_node_that_returns_regroups_from_its_start(recorded_run: RecordedRun) -> None:
    recorded_run.form(*ALL_NODES).train(10).wait(8.0).form("gpu-0", "gpu-2").train(10)
    recorded_run.wait(30.0).form(*ALL_NODES).train(10)

    assert states(recorded_run, "gpu-1")[-3:] == [
        NodeState.GONE,
        NodeState.REGROUPING,
        NodeState.TRAINING,
    ]


def test_the_segments_of_every_node_cover_the_whole_span_without_gaps(
    drill_run: RecordedRun,
) -> None:
    run = drill_run.run()
    start, end = span(run, drill_run.now)

    timelines = node_timelines(run, drill_run.now)

    assert [timeline.node for timeline in timelines] == ["gpu-0", "gpu-1", "gpu-2"]
    for timeline in timelines:
        assert timeline.segments[0].start == start
        assert timeline.segments[-1].end == end
        assert all(left.end == right.start for left, right in pairwise(timeline.segments))


@given(width=st.integers(1, 300), outage=st.floats(0.001, 50))
def test_even_the_shortest_outage_is_visible(width: int, outage: float) -> None:
    segments = [
        Segment(0, 50, NodeState.TRAINING),
        Segment(50, 50 + outage, NodeState.GONE),
        Segment(50 + outage, 200, NodeState.TRAINING),
    ]

    row = time_cells(segments, 0, 200, width)

    assert len(row) == width
    assert NodeState.GONE in row


def test_without_color_every_state_has_a_distinct_glyph(drill_run: RecordedRun) -> None:
    run = drill_run.run()

    text = terminal_text(report_screen(reports.build(run), run, drill_run.now, 100))

    rows = [line.removeprefix("gpu-") for line in text.splitlines() if line.startswith("gpu-")]
    assert {glyph for row in rows for glyph in row[1:]} == {*"█▒╌ "}
    assert len({glyph for glyph, _ in GLYPHS.values()}) == len(NodeState)


def test_a_run_that_has_stopped_is_shown_as_such_and_its_timeline_ends_with_its_last_step() -> None:
    recorded_run = RecordedRun().form(*ALL_NODES).train(60)
    run, later = recorded_run.run(), recorded_run.now + 40 * 24 * 3600

    text = terminal_text(report_screen(reports.build(run), run, later, 100))

    assert "stopped" in text.splitlines()[0]
    (axis,) = (line for line in text.splitlines() if line.split()[:1] == ["0:00"])
    assert axis.split()[-1] == "0:30", "forty days without a step are not part of the training"
    current = terminal_text(report_screen(reports.build(run), run, recorded_run.now, 100))
    assert "training" in current.splitlines()[0]


def test_a_run_with_a_result_ends_with_its_last_entry_if_its_worker_recorded_no_end() -> None:
    recorded_run = RecordedRun().form(*ALL_NODES).train(60).finish()
    run = replace(recorded_run.run(), entries=recorded_run.run().entries[:-3])
    later = recorded_run.now + 24 * 3600

    text = terminal_text(report_screen(reports.build(run), run, later, 100))

    assert "finished" in text.splitlines()[0]
    (axis,) = (line for line in text.splitlines() if line.split()[:1] == ["0:00"])
    assert axis.split()[-1] == "0:30"


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_no_line_of_the_timeline_is_wider_than_the_terminal(
    width: int, drill_run: RecordedRun
) -> None:
    run = drill_run.run()
    for screen in (report_screen, follow_screen):
        text = terminal_text(screen(reports.build(run), run, drill_run.now, width), width)
        rows = [line for line in text.splitlines() if line.startswith("gpu-")]
        assert len(rows) == 3, "a timeline must not wrap"
        assert all(len(line) <= width for line in text.splitlines())


def test_the_live_view_can_be_rendered_at_every_point_of_a_run() -> None:
    complete_run = drill().run()
    for count in range(0, len(complete_run.entries), 7):
        lines = complete_run.entries[:count]
        now = lines[-1].at if lines else 0.0
        events = tuple(event for event in complete_run.events if event.at <= now)
        run = RunRecord(lines, events)
        report = reports.build(run)
        text = terminal_text(follow_screen(report, run, now + 1, 90), 90)
        assert f"step {report.steps}/" in text
