"""Where every second of a node went, and how it is drawn."""

import io
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from everstep.cli import report as reports
from everstep.cli.run import Run
from everstep.cli.screen import follow_screen, report_screen
from everstep.cli.timeline import Segment, State, cells, span, strips
from tests.unit.cli.story import Story, drill

ALL = ("gpu-0", "gpu-1", "gpu-2")


def states(story: Story, node: str) -> list[State]:
    strip = next(strip for strip in strips(story.run(), story.now) if strip.node == node)
    return [segment.state for segment in strip.segments]


def printed(renderable, width: int = 100, *, colour: bool = False) -> str:
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=colour, no_color=not colour).print(renderable)
    return out.getvalue()


def test_a_drained_node_is_gone_until_it_is_back_and_regrouping_until_its_worker_trains(drilled):
    assert states(drilled, "gpu-1")[:5] == [
        State.REGROUPING,
        State.TRAINING,
        State.GONE,
        State.REGROUPING,
        State.TRAINING,
    ]


def test_a_survivor_restarts_while_the_group_forms_anew_and_was_never_gone(drilled):
    seen = states(drilled, "gpu-2")

    assert State.GONE not in seen
    assert seen.count(State.REGROUPING) == 5, "the start, two losses and two arrivals"


def test_survivors_show_as_regrouping_from_the_loss_on_not_only_once_they_have_recovered(story):
    story.form(*ALL).train(10).event("vanish", "gpu-0").wait(5.0)

    assert states(story, "gpu-1")[-1] is State.REGROUPING
    assert states(story, "gpu-0")[-1] is State.GONE


def test_a_thawed_node_that_kept_its_worker_goes_on_training(story):
    story.form(*ALL).train(10).event("freeze", "gpu-1").wait(1.0).event("thaw", "gpu-1").train(5)

    assert states(story, "gpu-1")[-2:] == [State.GONE, State.TRAINING]


def test_a_machine_trained_until_its_notice_though_its_worker_is_on_another_one_now(story):
    story.form(*ALL).train(10).event("notice", "gpu-1").wait(1.0).form("gpu-0", "gpu-2").train(5)
    story.replace("gpu-1", "gpu-3").form("gpu-0", "gpu-3", "gpu-2").train(5)

    assert states(story, "gpu-1") == [State.REGROUPING, State.TRAINING, State.GONE]
    assert states(story, "gpu-3")[-1] is State.TRAINING


def test_a_node_that_was_lost_without_anyone_saying_so_shows_as_gone(story):
    story.form(*ALL).train(10).wait(8.0).form("gpu-0", "gpu-2").train(10)

    assert states(story, "gpu-1")[-2:] == [State.REGROUPING, State.GONE]
    assert states(story, "gpu-0")[-1] is State.TRAINING


def test_the_segments_of_every_node_cover_the_whole_span_without_gaps(drilled):
    run = drilled.run()
    start, end = span(run, drilled.now)

    for strip in strips(run, drilled.now):
        assert strip.segments[0].start == start
        assert strip.segments[-1].end == end
        assert all(left.end == right.start for left, right in pairwise(strip.segments))


@settings(deadline=None)  # a busy machine is no fault
@given(width=st.integers(1, 300), outage=st.floats(0.001, 50))
def test_an_outage_however_short_is_never_painted_over(width, outage):
    segments = [
        Segment(0, 50, State.TRAINING),
        Segment(50, 50 + outage, State.GONE),
        Segment(50 + outage, 200, State.TRAINING),
    ]

    row = cells(segments, 0, 200, width)

    assert len(row) == width
    assert State.GONE in row


def test_without_colour_every_state_has_a_glyph_of_its_own(drilled):
    text = printed(report_screen(reports.build(drilled.run()), drilled.run(), drilled.now, 100))

    assert "\x1b" not in text
    for glyph in "█▒╌":
        assert glyph in text


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_no_line_of_the_timeline_is_wider_than_the_terminal(width, drilled):
    run = drilled.run()
    for screen in (report_screen, follow_screen):
        text = printed(screen(reports.build(run), run, drilled.now, width), width)
        rows = [line for line in text.splitlines() if line.startswith("gpu-")]
        assert len(rows) == 3, "a row that wraps is no timeline"
        assert all(len(line) <= width for line in text.splitlines())


def test_the_live_view_can_be_drawn_at_every_moment_of_a_training():
    whole = drill().run()
    for count in range(0, len(whole.lines), 7):
        lines = whole.lines[:count]
        now = lines[-1].at if lines else 0.0
        events = tuple(event for event in whole.events if event.at <= now)
        run = Run(lines, events)
        printed(follow_screen(reports.build(run), run, now + 1, 90), 90)
