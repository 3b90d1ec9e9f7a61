"""Moves on the terminal."""

import io

from rich.console import Console

from everstep.cli.report.move_screen import move_sentence
from everstep.cli.report.report import build
from everstep.cli.report.screens import report_screen
from tests.everstep.cli.recorded_run import RecordedRun, two_zones


def shown(recorded: RecordedRun) -> str:
    console, run = Console(file=io.StringIO(), width=140), recorded.run()
    console.print(report_screen(build(run), run, recorded.now, 140))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_report_has_each_move_with_its_reason_and_cost() -> None:
    row = next(line for line in shown(two_zones()).splitlines() if "zone-a → zone-b" in line)

    assert "3.00 s" in row
    assert "zone-b offers 2 machines" in row


def test_a_report_without_moves_does_not_mention_them(drill_run: RecordedRun) -> None:
    assert "move" not in shown(drill_run)


def test_a_move_under_way_is_shown_before_its_cost_is_known(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(10).begin_move()
    (running,) = build(recorded_run.run()).moves
    (ended,) = build(two_zones().run()).moves

    assert move_sentence(running) == (
        "move from zone-a to zone-b, under way: zone-b offers 2 machines"
    )
    assert "the group paused 3.00 s" in move_sentence(ended)


def test_an_abandoned_move_says_so(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(10).begin_move().train(5).end_move(abandoned=True).train(5)
    (move,) = build(recorded_run.run()).moves

    assert move_sentence(move).startswith("abandoned move from zone-a to zone-b")
    assert "abandoned" in shown(recorded_run)
