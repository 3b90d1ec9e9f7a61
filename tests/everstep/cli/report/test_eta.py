"""Remaining time: the speed of the last steps, and pauses at their previous rate."""

import pytest

from everstep.cli.report.eta import remaining_seconds
from everstep.cli.report.follow import progress_line
from everstep.cli.report.report import build
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.screens import follow_screen
from tests.everstep.cli.recorded_run import STEP_SECONDS, RecordedRun
from tests.everstep.cli.report.terminal import terminal_text


def test_without_pauses_the_remaining_time_is_the_time_of_the_remaining_steps(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form("gpu-0").train(100)

    assert remaining_seconds(recorded_run.run()) == pytest.approx(200 * STEP_SECONDS)


def test_pauses_continue_at_the_same_rate(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0", "gpu-1").train(50).wait(50.0).form("gpu-0").train(50)

    assert remaining_seconds(recorded_run.run()) == pytest.approx(2 * 200 * STEP_SECONDS)


def test_repeated_steps_do_not_count_twice(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0", "gpu-1").train(60).form("gpu-0", resume_from=20).train(40)

    assert remaining_seconds(recorded_run.run()) == pytest.approx(240 * STEP_SECONDS * 100 / 60)


def test_the_end_is_unknown_before_a_step_and_reached_after_the_last(
    recorded_run: RecordedRun, drill_run: RecordedRun
) -> None:
    assert remaining_seconds(RunRecord()) is None
    assert remaining_seconds(recorded_run.form("gpu-0").run()) is None
    assert remaining_seconds(drill_run.run()) == 0.0


def test_the_line_of_follow_has_the_remaining_time_and_the_cost(recorded_run: RecordedRun) -> None:
    run = recorded_run.form("gpu-0").train(100).run()

    assert progress_line(build(run), run, "$0.12 so far").endswith("1:40 left  $0.12 so far")


def test_the_view_of_follow_has_the_remaining_time_and_the_cost(recorded_run: RecordedRun) -> None:
    run = recorded_run.form("gpu-0").train(100).run()

    text = terminal_text(follow_screen(build(run), run, recorded_run.now, 120, "$0.12 so far"), 120)

    assert "left 1:40" in text
    assert "cost $0.12 so far" in text
