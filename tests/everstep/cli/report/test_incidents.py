"""Incidents on the terminal: the table of events lists the same incidents as the page."""

from collections.abc import Callable

import pytest
from rich.console import RenderableType

from everstep.cli.report.incidents import CapacityEffect, capacity_incidents
from everstep.cli.report.report import Report, build
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.screens import follow_screen, incident_sentence, report_screen
from tests.everstep.cli.recorded_run import RecordedRun
from tests.everstep.cli.report.terminal import terminal_text

Screen = Callable[[Report, RunRecord, float, int], RenderableType]
SCREENS: list[Screen] = [report_screen, follow_screen]


def rows(recorded_run: RecordedRun, screen: Screen) -> list[str]:
    """Return the lines of a screen, without repeated spaces."""
    run = recorded_run.run()
    text = terminal_text(screen(build(run), run, recorded_run.now, 120), 120)
    return [" ".join(line.split()) for line in text.splitlines()]


@pytest.fixture
def replaced(recorded_run: RecordedRun) -> RecordedRun:
    """Return a run in which the worker of a node that is NotReady was replaced: no machine recorded an event."""
    recorded_run.form("gpu-0", "gpu-1", "gpu-2").train(20)
    recorded_run.write("gpu-1", "leave", step=20, reason="pod deleted")
    recorded_run.wait(4.0).regroup("gpu-0", "gpu-2").train(20)
    return (
        recorded_run.replace("gpu-1", "gpu-3").regroup("gpu-0", "gpu-2", "gpu-3").wait(1).train(9)
    )


@pytest.mark.parametrize("screen", SCREENS)
def test_the_table_lists_a_node_whose_worker_was_replaced_without_an_event(
    replaced: RecordedRun, screen: Screen
) -> None:
    lines = rows(replaced, screen)

    assert "0:10 left gpu-1 4.50 s" in lines
    assert "0:24 joined gpu-3 1.50 s" in lines


@pytest.mark.parametrize("screen", SCREENS)
def test_an_event_and_the_change_that_it_caused_are_one_row(
    drill_run: RecordedRun, screen: Screen
) -> None:
    lines = rows(drill_run, screen)

    kinds = ("drain", "return", "vanish", "left", "lost", "joined", "regroup")
    events = [
        line.split()[1:3] for line in lines if len(line.split()) > 2 and line.split()[1] in kinds
    ]
    assert events == [
        ["drain", "gpu-1"],
        ["return", "gpu-1"],
        ["vanish", "gpu-0"],
        ["return", "gpu-0"],
    ]


def test_steps_lost_are_dots_while_training_has_not_continued(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0", "gpu-1").train(20).event("vanish", "gpu-1").wait(2.0)

    assert "0:10 vanish gpu-1 ... ..." in rows(recorded_run, report_screen)


def test_incidents_of_capacity_are_in_order_of_time(replaced: RecordedRun) -> None:
    replaced.event("vanish", "gpu-0").wait(3.0).regroup("gpu-2", "gpu-3").train(5)
    run = replaced.run()

    found_incidents = capacity_incidents(run, build(run).events)

    assert [incident.kind for incident in found_incidents] == ["left", "joined", "vanish"]
    assert [incident.effect for incident in found_incidents] == [
        CapacityEffect.LOSS,
        CapacityEffect.ARRIVAL,
        CapacityEffect.LOSS,
    ]


def test_lines_of_text_have_the_same_incidents(
    replaced: RecordedRun, drill_run: RecordedRun
) -> None:
    def sentences(recorded_run: RecordedRun) -> list[str]:
        run = recorded_run.run()
        return [incident_sentence(item) for item in capacity_incidents(run, build(run).events)]

    assert sentences(replaced) == [
        "left gpu-1: next step after 4.50 s",
        "joined gpu-3: next step after 1.50 s",
    ]
    assert sentences(drill_run)[2] == "vanish gpu-0: next step after 11.50 s, 4 steps lost"
