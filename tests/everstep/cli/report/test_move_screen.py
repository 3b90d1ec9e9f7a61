"""Moves on the terminal."""

from dataclasses import replace

from everstep.cli.report.machines import ReportedMachine
from everstep.cli.report.money import Billing, cost_of_run
from everstep.cli.report.move_screen import move_sentence
from everstep.cli.report.report import build
from everstep.cli.report.screens import report_screen
from tests.everstep.cli.recorded_run import RecordedRun, two_zones
from tests.everstep.cli.report.terminal import terminal_text
from tests.everstep.cli.report.test_money import BY_POOL, T4_SPOT
from tests.everstep.cli.report.test_zone_traffic import ZONES


def render(recorded_run: RecordedRun, billing: Billing | None = None) -> str:
    run = recorded_run.run()
    costs = cost_of_run(run, recorded_run.now, billing) if billing else None
    return terminal_text(report_screen(build(run), run, recorded_run.now, 140, costs), 140)


def test_the_report_has_each_move_with_its_reason_and_cost() -> None:
    row = next(line for line in render(two_zones()).splitlines() if "zone-a → zone-b" in line)

    assert "3.00 s" in row
    assert "zone-b offers 2 machines" in row


def test_the_report_has_the_price_of_the_moves_and_of_the_data_between_zones() -> None:
    machines = {node: ReportedMachine(T4_SPOT, zone, since=0.0) for node, zone in ZONES.items()}
    rates = replace(BY_POOL, between_zones=0.02)

    text = render(two_zones(), Billing(billed=True, rates=rates, machines=machines))

    assert "Idle machines during moves: 1.2 machine-minutes, $0.004." in text
    assert "Between zones: 14.40 GB of gradients and 0.16 GB of state, $0.291." in text
    assert "Between zones" not in render(two_zones()), "no price without the stack"


def test_a_report_without_moves_does_not_mention_them(drill_run: RecordedRun) -> None:
    assert "move" not in render(drill_run)


def test_a_move_under_way_is_shown_before_its_cost_is_known(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(10).begin_move()
    (running_move,) = build(recorded_run.run()).moves
    (ended_move,) = build(two_zones().run()).moves

    assert move_sentence(running_move) == (
        "move from zone-a to zone-b, under way: zone-b offers 2 machines"
    )
    assert "the group paused 3.00 s" in move_sentence(ended_move)


def test_an_abandoned_move_is_reported_as_such(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0").train(10).begin_move().train(5).end_move(abandoned=True).train(5)
    (move,) = build(recorded_run.run()).moves

    assert move_sentence(move).startswith("abandoned move from zone-a to zone-b")
    assert "abandoned" in render(recorded_run)
