"""Money of a run: hours of machines that were present, times prices; unknown prices stay unknown."""

import pytest

from components.cost import Cost, CostItem
from everstep.cli.report.billing import rates_of
from everstep.cli.report.money import Billing, Rates, cost_so_far, money
from everstep.cli.report.run_record import RunRecord
from tests.everstep.cli.recorded_run import RecordedRun

RATES = Rates(machine=1.2, machine_on_demand=3.6, fixed=0.6, as_of="2026-11-01")


def test_a_machine_costs_nothing_while_it_is_gone(recorded_run: RecordedRun) -> None:
    start = recorded_run.now
    recorded_run.form("gpu-0", "gpu-1").train(20).event("vanish", "gpu-1").wait(5.0)
    recorded_run.form("gpu-0").train(90)
    seconds = recorded_run.now - start

    spent = money(recorded_run.run(), recorded_run.now, Billing(billed=True, rates=RATES))

    assert spent.machine_hours == pytest.approx((seconds + 10.0) / 3600)
    assert spent.spent_usd == pytest.approx(1.2 * spent.machine_hours + 0.6 * seconds / 3600)
    assert spent.saved_usd == pytest.approx(2.4 * spent.machine_hours)
    assert spent.hourly_usd == pytest.approx(1.2 + 0.6), "one machine is left"


def test_a_finished_run_costs_no_more_as_time_passes(drilled: RecordedRun) -> None:
    billing = Billing(billed=True, rates=RATES)

    assert money(drilled.run(), drilled.now, billing) == money(
        drilled.run(), drilled.now + 86_400, billing
    )


def test_an_unknown_price_is_not_counted_as_nothing(drilled: RecordedRun) -> None:
    rates = Rates(machine=None, machine_on_demand=3.6, fixed=0.6, as_of="2026-11-01")

    spent = money(drilled.run(), drilled.now, Billing(billed=True, rates=rates))

    assert (spent.spent_usd, spent.saved_usd) == (None, None)
    assert spent.on_demand_usd is not None


def test_nothing_is_billed_without_a_cloud(drilled: RecordedRun) -> None:
    spent = money(drilled.run(), drilled.now, Billing(billed=False, reason="it ran here"))

    assert (spent.billed, spent.spent_usd, spent.reason) == (False, 0.0, "it ran here")


def test_a_run_that_has_not_started_costs_nothing() -> None:
    spent = money(RunRecord(), 1000.0, Billing(billed=True, rates=RATES))

    assert (spent.machine_hours, spent.spent_usd) == (0.0, 0.0)


def item(
    component: str, name: str, count: int, on_demand: float | None, spot: float | None
) -> CostItem:
    return CostItem(
        component=component, name=name, count=count, maximum=4, on_demand=on_demand, spot=spot
    )


def test_prices_are_those_of_one_machine_with_its_disk_and_of_everything_else() -> None:
    items = (
        item("GPU pool", "g5.xlarge", 3, 1.0, 0.4),
        item("GPU pool", "disk of 100 GiB", 3, 0.1, 0.1),
        item("GPU fallback", "g5.xlarge", 0, 1.0, 1.0),
        item("system pool", "m5.large", 2, 0.2, 0.2),
    )

    rates = rates_of(Cost(items=items, as_of="2026-11-01", notes=("by usage",)))

    assert rates is not None
    assert rates.machine == pytest.approx(0.5)
    assert rates.machine_on_demand == pytest.approx(1.1)
    assert rates.fixed == pytest.approx(0.4)
    assert rates.notes == ("by usage",)


def test_an_item_without_a_price_is_named() -> None:
    items = (item("GPU pool", "p5.xlarge", 3, 9.0, None),)

    rates = rates_of(Cost(items=items, as_of="2026-11-01", notes=()))

    assert rates is not None
    assert (rates.machine, rates.unknown) == (None, ("p5.xlarge",))


def test_a_stack_that_buys_nothing_has_no_prices() -> None:
    assert rates_of(Cost(items=(), as_of="2026-11-01", notes=())) is None


def test_the_cost_so_far_is_a_few_words(drilled: RecordedRun) -> None:
    run, now = drilled.run(), drilled.now
    unknown = Rates(machine=None, machine_on_demand=None, fixed=0.0, as_of="2026-11-01")

    assert cost_so_far(money(run, now, Billing(billed=True, rates=RATES))) == "$0.188 so far"
    assert cost_so_far(money(run, now, Billing(billed=True, rates=unknown))) == "unknown"
    assert cost_so_far(money(run, now, Billing(billed=False, reason="here"))) == "nothing is billed"
