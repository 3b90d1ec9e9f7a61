"""The targets of the simulation, on a few histories: following capacity, and meeting a deadline."""

from statistics import median

import pytest

from benchmarks.capacity import (
    MACHINES,
    deadline_rows,
    fit_rows,
    follow,
    following_rows,
    histories,
    simulate_with_deadline,
    upper_bound,
    week,
)
from everstep.capacity.generator import fit
from everstep.capacity.hindsight import cheapest
from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import JobModel, Prices
from everstep.capacity.on_demand import latest_start, uniform_progress
from everstep.catalog.units import HOUR_SECONDS

MODEL = fit()


@pytest.fixture(scope="module")
def sample() -> list[CapacityHistory]:
    return histories(MODEL, 4, 0, 300)


def test_a_group_that_follows_capacity_uses_nine_tenths_of_the_best_zone(
    sample: list[CapacityHistory],
) -> None:
    for history in sample:
        outcome = follow(history)
        offered = sum(map(max, history.machines)) * history.gap_seconds
        assert outcome.work_done >= 0.9 * offered
        assert outcome.moves <= history.hours, "at most one move per hour"


def test_a_group_that_follows_capacity_trains_far_more_than_in_one_zone(
    sample: list[CapacityHistory],
) -> None:
    everywhere = sum(follow(history).work_done for history in sample)
    single_zone = sum(
        follow(history.with_zones([zone])).work_done for history in sample for zone in range(3)
    )

    assert everywhere >= 1.5 * single_zone / 3, (
        "twice as much over many histories: docs/measurements.md"
    )


def test_a_deadline_is_met_at_nearly_the_optimum_in_hindsight() -> None:
    job = JobModel(work=MACHINES * 6 * HOUR_SECONDS, machines=MACHINES, prices=Prices(0.3, 1.0))
    deadline = 1.5 * job.shortest_seconds
    cost_ratios, baseline_ratios = [], []
    for history in histories(MODEL, 10, 0, deadline / HOUR_SECONDS + 1):
        outcome = simulate_with_deadline(history, job, deadline, latest_start)
        assert outcome.complete
        assert outcome.seconds <= deadline
        optimum = cheapest(history, job, deadline)
        cost_ratios.append(outcome.usd / optimum)
        baseline_ratios.append(
            simulate_with_deadline(history, job, deadline, uniform_progress).usd / optimum
        )

    assert median(cost_ratios) <= 1.15
    assert sum(cost_ratios) <= sum(baseline_ratios), "uniform progress is the baseline"


def test_tables_contain_the_target_of_each_figure(sample: list[CapacityHistory]) -> None:
    rows = [*fit_rows(sample), *following_rows(sample[:1])]

    expected = {row.name: row.expected for row in rows}
    assert expected["zone 1: mean machines"] == "5.4"
    assert expected["best zone: mean machines"] == "13.3"
    assert expected["share of the best zone's machine-hours, all histories"] == "90%"
    assert all(row.value for row in rows)


def test_the_bound_of_a_group_in_one_zone_is_the_best_capacity_over_the_mean_capacity() -> None:
    history = CapacityHistory(("a", "b"), 300.0, ((4, 0), (0, 2), (3, 3)))

    assert upper_bound(history) == pytest.approx((4 + 2 + 3) / (2 + 1 + 3))
    assert upper_bound(CapacityHistory(("a",), 300.0, ((0,),))) == 1


def test_the_bound_is_printed_beside_the_ratio_to_one_zone(
    sample: list[CapacityHistory],
) -> None:
    rows = list(following_rows(sample))

    values = {row.name: row.value for row in rows}
    assert 1 < float(values["upper bound: best zone over mean zone, all histories"]) < 3
    medians = [row.value for row in rows if row.name == "... by history"]
    assert len(medians) == 2, "shares of the best zone, and the bound"


def test_the_picture_shows_the_week() -> None:
    assert "168 hours, 16 desired machines" in week(1)


def test_policies_are_compared_for_each_deadline() -> None:
    rows = list(deadline_rows(MODEL, 1, 0))

    assert len(rows) == 2 * 4 * 4, "prices, deadlines, policies"
    targets = [row for row in rows if row.expected]
    assert len(targets) == 2 * 4, "one for each price and deadline"
    assert all("1 of 1 in time" in row.value for row in targets)
