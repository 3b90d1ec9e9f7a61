"""The optimum in hindsight: its cost for simple histories, and that no policy beats it."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.capacity.generator import fit, generate
from everstep.capacity.hindsight import cheapest
from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import JobModel, Prices
from everstep.capacity.on_demand import greedy, latest_start, uniform_progress
from everstep.capacity.placement import PlacementConfig
from everstep.capacity.simulator import parameters_of, simulate
from everstep.catalog.units import HOUR_SECONDS
from everstep.goodput import NO_COST, ChangeCost
from tests.effort import examples

GAP_SECONDS = 300.0
TICK_USD = 4 * GAP_SECONDS / HOUR_SECONDS  # four machines at one dollar
MODEL = fit()


def job(ticks: float, *, boot: ChangeCost = NO_COST, fixed: float = 0.0) -> JobModel:
    """Return a job that takes four machines this number of ticks."""
    base = JobModel(work=1, machines=4, prices=Prices(1.0, 3.0, fixed), boot=boot)
    return JobModel(
        work=ticks * 4 * GAP_SECONDS * base.steady_goodput,
        machines=4,
        prices=base.prices,
        boot=boot,
        design=base.design,
    )


def history(*ticks: tuple[int, ...]) -> CapacityHistory:
    return CapacityHistory(tuple("abc"[: len(ticks[0])]), GAP_SECONDS, ticks)


def test_spot_machines_are_used_where_there_are_any() -> None:
    optimum = cheapest(history((0,), (4,), (4,), (0,)), job(1.9), 4 * GAP_SECONDS)

    assert optimum == pytest.approx(1.75 * TICK_USD), "work is rounded down to 7 machine-ticks"


def test_missing_work_is_bought() -> None:
    optimum = cheapest(history((4,), (0,), (0,)), job(1.9), 3 * GAP_SECONDS)

    assert optimum == pytest.approx(TICK_USD + 0.75 * 3 * TICK_USD)


def test_part_of_the_group_is_bought_beside_spot_machines() -> None:
    optimum = cheapest(history((2,), (2,)), job(1.9), 2 * GAP_SECONDS)

    assert optimum == pytest.approx(1.75 * (TICK_USD / 2 + 3 * TICK_USD / 2))


def test_the_optimum_knows_the_future() -> None:
    optimum = cheapest(history((0,), (0,), (4,)), job(0.9), 3 * GAP_SECONDS)

    assert optimum == pytest.approx(0.75 * TICK_USD), (
        "nothing is bought while capacity is still expected"
    )


def test_machines_that_start_do_not_train() -> None:
    slow_job, capacity = job(1.7, boot=ChangeCost(250.0, "this test")), history((4,), (4,), (4,))

    assert cheapest(capacity, slow_job, 2 * GAP_SECONDS) == inf
    assert cheapest(capacity, slow_job, 3 * GAP_SECONDS) == pytest.approx(2.25 * TICK_USD)


def test_the_group_moves_if_that_is_cheaper_than_machines_on_demand() -> None:
    boot = ChangeCost(250.0, "this test")
    optimum = cheapest(history((4, 0), (0, 4), (0, 4)), job(1.7, boot=boot), 3 * GAP_SECONDS)

    assert 2 * TICK_USD < optimum <= 3 * TICK_USD, "one tick on spot and two on demand cost seven"


def test_a_deadline_that_cannot_be_met_has_an_infinite_cost() -> None:
    assert cheapest(history((4,), (4,)), job(2.5), 2 * GAP_SECONDS) == inf


def test_fixed_costs_end_with_the_job() -> None:
    optimum = cheapest(history((4,), (4,), (4,)), job(0.9, fixed=12), 3 * GAP_SECONDS)

    assert optimum == pytest.approx(0.75 * (TICK_USD + 12 * GAP_SECONDS / HOUR_SECONDS))


@settings(max_examples=examples(8))
@given(seed=st.integers(0, 10_000), slack=st.floats(1.05, 2), spot=st.floats(0.1, 0.9))
def test_no_policy_is_cheaper_than_the_optimum(seed: int, slack: float, spot: float) -> None:
    job_model = JobModel(work=8 * 4 * HOUR_SECONDS, machines=8, prices=Prices(spot, 1.0))
    deadline = job_model.shortest_seconds * slack + 2 * GAP_SECONDS
    generated_history = generate(MODEL, seed=seed, hours=deadline / HOUR_SECONDS + 1, machines=8)

    optimum = cheapest(generated_history, job_model, deadline)

    for policy in (latest_start, uniform_progress, greedy):
        parameters = parameters_of(job_model, GAP_SECONDS, deadline)
        outcome = simulate(
            generated_history, job_model, parameters, PlacementConfig(machines=8), policy
        )
        if outcome.complete and outcome.seconds <= deadline:
            assert outcome.usd >= optimum - 1e-9, policy.__name__
