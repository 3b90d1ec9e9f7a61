"""Spending by pool on the terminal."""

from dataclasses import replace

import pytest

from everstep.cli.report.machines import ReportedMachine
from everstep.cli.report.money import Billing, cost_of_run
from everstep.cli.report.report import build
from everstep.cli.report.screens import report_screen
from tests.everstep.cli.recorded_run import STEP_SECONDS, RecordedRun
from tests.everstep.cli.report.terminal import terminal_text
from tests.everstep.cli.report.test_money import BY_POOL, T4_ON_DEMAND, T4_SPOT

MACHINES = {"gpu-0": ReportedMachine(T4_SPOT), "gpu-1": ReportedMachine(T4_ON_DEMAND)}


@pytest.fixture
def two_pools(recorded_run: RecordedRun) -> RecordedRun:
    """Return a run of one hour on a spot machine and an on-demand machine."""
    recorded_run.form("gpu-0", "gpu-1").train(10).wait(3600.0 - 11 * STEP_SECONDS)
    return recorded_run.train(1)


def render(recorded_run: RecordedRun, billing: Billing) -> str:
    run = recorded_run.run()
    costs = cost_of_run(run, recorded_run.now, billing)
    return terminal_text(report_screen(build(run), run, recorded_run.now, 140, costs), 140)


def row(text: str, start: str) -> list[str]:
    """Return the words of the line that begins with these characters."""
    return next(line for line in text.splitlines() if line.startswith(start)).split()


def test_the_report_has_the_machines_of_each_pool_as_bought_and_on_demand(
    two_pools: RecordedRun,
) -> None:
    text = render(two_pools, Billing(billed=True, rates=BY_POOL, machines=MACHINES))

    assert row(text, "a, spot")[-3:] == ["1.00", "$0.200", "$0.500"]
    assert row(text, "a, on-demand fallback")[-3:] == ["1.00", "$0.500", "$0.500"]


def test_the_sum_includes_all_other_resources_and_what_spot_machines_saved(
    two_pools: RecordedRun,
) -> None:
    text = render(two_pools, Billing(billed=True, rates=BY_POOL, machines=MACHINES))

    assert (
        "With all other resources of the stack: $1.30, on demand $1.60, 19% saved, "
        "at list prices of 2026-11-01 or later."
    ) in text


def test_the_twin_shows_the_prices_of_the_cloud_and_that_nothing_was_billed(
    two_pools: RecordedRun,
) -> None:
    billing = Billing(
        billed=False, reason="the stack runs on the twin", rates=BY_POOL, machines=MACHINES
    )

    text = render(two_pools, billing)

    assert (
        "Nothing was billed: the stack runs on the twin. The cloud would have billed these prices."
        in text
    )
    assert "$1.30" in text


def test_a_machine_without_a_price_makes_the_sum_unknown(two_pools: RecordedRun) -> None:
    rate = replace(BY_POOL.machines[T4_SPOT], price=None)
    rates = replace(BY_POOL, machines={**BY_POOL.machines, T4_SPOT: rate}, unknown=("g4dn.xlarge",))

    text = render(two_pools, Billing(billed=True, rates=rates, machines=MACHINES))

    assert row(text, "a, spot")[-3:] == ["1.00", "unknown", "$0.500"]
    assert "The sum is unknown: no price is known for g4dn.xlarge." in text


def test_a_spot_price_above_the_on_demand_price_saves_nothing(two_pools: RecordedRun) -> None:
    rate = replace(BY_POOL.machines[T4_SPOT], price=0.7)
    rates = replace(BY_POOL, machines={**BY_POOL.machines, T4_SPOT: rate})

    text = render(two_pools, Billing(billed=True, rates=rates, machines=MACHINES))

    assert (
        "With all other resources of the stack: $1.80, at list prices of 2026-11-01 or later."
        in text
    )


def test_a_resource_without_a_price_is_named_as_not_included(two_pools: RecordedRun) -> None:
    rates = replace(BY_POOL, unknown=("traffic",))

    text = render(two_pools, Billing(billed=True, rates=rates, machines=MACHINES))

    assert "Not included, because their price is unknown: traffic." in text


def test_the_caveats_of_the_prices_follow_the_sum(two_pools: RecordedRun) -> None:
    rates = replace(BY_POOL, notes=("traffic is not included",))

    text = render(two_pools, Billing(billed=True, rates=rates, machines=MACHINES))

    assert "\nTraffic is not included." in text


def test_a_stack_that_buys_nothing_has_no_table_of_spending(two_pools: RecordedRun) -> None:
    text = render(two_pools, Billing(billed=False, reason="the stack runs on this machine"))

    assert "as bought" not in text
    assert "billed" not in text
