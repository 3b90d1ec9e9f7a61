"""Marks of events on the timeline of a node."""

from everstep.cli.report.incidents import CapacityEffect, Incident
from everstep.cli.report.page.timeline_view import MARKS_PER_LANE, marks_of


def event(at: float) -> Incident:
    return Incident(
        at=at, effect=CapacityEffect.NOTE, kind="restore", subject="gpu-0", node="gpu-0", cause="A."
    )


def test_few_events_have_a_mark_each() -> None:
    events = [(number, event(50.0)) for number in range(1, MARKS_PER_LANE + 1)]

    assert [mark.numbers for mark in marks_of(events, 0.0, 100.0)] == [
        (number,) for number, _ in events
    ]


def test_many_events_share_marks_and_the_last_moment_belongs_to_the_last_mark() -> None:
    seconds = 1000.0
    events = [(number, event(seconds * number / 1000)) for number in range(1, 1001)]

    marks = marks_of(events, 0.0, seconds)

    assert len(marks) == MARKS_PER_LANE
    assert marks[-1].numbers[-1] == 1000
    assert [number for mark in marks for number in mark.numbers] == [n for n, _ in events]
