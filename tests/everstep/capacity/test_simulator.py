"""The simulator: histories with known results, and invariants of all histories."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep.capacity.generator import fit, generate
from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import LIVE, Guaranteed, JobModel, Prices
from everstep.capacity.on_demand import (
    FALLBACK_AFTER_SECONDS,
    POLICIES,
    OnDemand,
    always,
    latest_start,
    never,
)
from everstep.capacity.placement import PlacementConfig
from everstep.capacity.simulator import Outcome, parameters_of, simulate
from everstep.catalog.units import HOUR_SECONDS
from everstep.goodput import NO_COST, ChangeCost
from tests.effort import examples

GAP_SECONDS = 300.0
FREE_DESIGN = replace(
    LIVE,
    loss=NO_COST,
    join=NO_COST,
    begin=NO_COST,
    start_up=NO_COST,
    repeated=NO_COST,
    stall=NO_COST,
)
JOB = JobModel(
    work=1e12,
    machines=4,
    prices=Prices(1.0, 3.0),
    design=FREE_DESIGN,
    boot=NO_COST,
    idle=NO_COST,
)

SLOW_JOB = replace(JOB, boot=ChangeCost(1800, "this test"))


def history(*ticks: tuple[int, ...]) -> CapacityHistory:
    return CapacityHistory(tuple("abc"[: len(ticks[0])]), GAP_SECONDS, ticks)


def run(
    ticks: CapacityHistory,
    job: JobModel = JOB,
    on_demand: OnDemand = OnDemand.NEVER,
    deadline: float | None = None,
    budget: float | None = None,
) -> Outcome:
    parameters = parameters_of(job, GAP_SECONDS, deadline, budget)
    placement = PlacementConfig(machines=job.machines, start_seconds=job.start_seconds)
    return simulate(ticks, job, parameters, placement, POLICIES[on_demand], record=True)


def test_machines_train_for_as_long_as_there_are_any() -> None:
    outcome = run(history((4,), (2,), (0,), (9,)))

    assert outcome.spot_seconds == (4 + 2 + 0 + 4) * GAP_SECONDS
    assert outcome.usd == pytest.approx(10 * GAP_SECONDS / HOUR_SECONDS)
    assert not outcome.complete


def test_a_job_ends_when_its_work_is_done() -> None:
    outcome = run(history((4,), (4,), (4,)), replace(JOB, work=2 * 4 * GAP_SECONDS))

    assert outcome.complete
    assert outcome.seconds == 2 * GAP_SECONDS
    assert outcome.goodput == 1


@pytest.mark.parametrize("ticks_of_work", [0.2, 1.0, 2.4])
def test_a_job_is_billed_until_its_work_is_done_and_not_until_the_end_of_the_tick(
    ticks_of_work: float,
) -> None:
    job = replace(JOB, work=ticks_of_work * 4 * GAP_SECONDS, prices=Prices(1.0, 3.0, fixed=2.0))

    outcome = run(history(*[(4,)] * 4), job)

    assert outcome.seconds == pytest.approx(ticks_of_work * GAP_SECONDS)
    assert outcome.spot_seconds == pytest.approx(job.work)
    assert outcome.usd == pytest.approx((4 + 2) * outcome.seconds / HOUR_SECONDS)
    assert outcome.goodput == pytest.approx(1)


def test_machines_that_idle_after_a_move_are_billed_until_the_job_is_complete() -> None:
    ticks = history((4, 4), *[(2, 4)] * 5)
    idle = ChangeCost(10 * GAP_SECONDS, "this test")
    work_before_the_move = (4 + 3 * 2) * GAP_SECONDS
    job = replace(JOB, idle=idle, work=work_before_the_move + 4 * 1.5 * GAP_SECONDS)

    outcome = run(ticks, job)

    assert (outcome.complete, outcome.moves) == (True, 1)
    assert outcome.seconds == pytest.approx(5.5 * GAP_SECONDS)
    idle_seconds = 2 * 1.5 * GAP_SECONDS
    without_idle_time = run(ticks, replace(job, idle=NO_COST)).spot_seconds
    assert outcome.spot_seconds - without_idle_time == pytest.approx(idle_seconds)


def test_a_budget_pays_for_the_whole_pass_in_which_the_job_is_completed() -> None:
    """A controller does not see the end of the job before a pass."""
    job = replace(JOB, work=4 * GAP_SECONDS / 2)
    tick_usd = 4 * GAP_SECONDS / HOUR_SECONDS

    assert run(history((4,)), job, budget=tick_usd * 0.9).suspended
    assert run(history((4,)), job, budget=tick_usd).usd == pytest.approx(tick_usd / 2)


def test_starting_machines_are_paid_for_and_do_not_train() -> None:
    outcome = run(history((4,), (4,)), replace(JOB, boot=ChangeCost(100, "this test")))

    assert outcome.work_done == 2 * 4 * GAP_SECONDS - 4 * 100
    assert outcome.spot_seconds == 2 * 4 * GAP_SECONDS


def test_a_start_longer_than_a_tick_continues_in_the_next() -> None:
    outcome = run(history((4,), (4,), (4,)), replace(JOB, boot=ChangeCost(400, "this test")))

    assert outcome.work_done == 3 * 4 * GAP_SECONDS - 4 * 400


def test_a_loss_of_all_machines_costs_the_work_since_the_checkpoint() -> None:
    job = replace(JOB, design=replace(FREE_DESIGN, checkpoint_seconds=30.0))

    assert run(history((4,), (0,)), job).work_done == 4 * GAP_SECONDS - 4 * 30
    assert run(history((4,), (1,)), job).work_done == 5 * GAP_SECONDS, (
        "the last machine still has the state"
    )


def test_a_loss_pauses_the_machines_that_remain() -> None:
    job = replace(JOB, design=replace(FREE_DESIGN, loss=ChangeCost(5, "this test")))

    assert run(history((4,), (3,)), job).work_done == 4 * GAP_SECONDS + 3 * (GAP_SECONDS - 5)


def test_the_group_follows_capacity_to_another_zone() -> None:
    outcome = run(history((4, 0), (0, 4), (0, 4), (0, 4)))

    assert [tick.zone for tick in outcome.ticks] == [0, 0, 1, 1], "the response takes a tick"
    assert outcome.moves == 1
    assert outcome.work_done == 3 * 4 * GAP_SECONDS - 4 * FREE_DESIGN.checkpoint_seconds


@pytest.mark.parametrize(
    ("idle_seconds", "later_ticks", "billed_idle_seconds"),
    [
        pytest.param(200, [(2, 4), (2, 4)], 2 * 200, id="until they are removed"),
        pytest.param(500, [(2, 4), (2, 4)], 2 * 500, id="also in the next tick"),
        pytest.param(900, [(2, 4), (1, 4), (0, 4)], 3 * GAP_SECONDS, id="until they are lost"),
        pytest.param(900, [(0, 4), (2, 4)], 0, id="not if they were lost before"),
    ],
)
def test_machines_of_the_zone_that_the_group_leaves_are_billed(
    idle_seconds: float, later_ticks: list[tuple[int, ...]], billed_idle_seconds: float
) -> None:
    ticks = history((4, 4), *[(2, 4)] * 3, *later_ticks)
    idle_time = ChangeCost(idle_seconds, "this test")

    outcome, without_idle_time = (
        run(ticks, replace(JOB, idle=idle)) for idle in (idle_time, NO_COST)
    )

    assert [tick.zone for tick in outcome.ticks[:5]] == [0, 0, 0, 0, 1]
    assert outcome.work_done == without_idle_time.work_done
    assert outcome.spot_seconds - without_idle_time.spot_seconds == billed_idle_seconds
    paid = outcome.usd - without_idle_time.usd
    assert paid == pytest.approx(billed_idle_seconds / HOUR_SECONDS)


def test_machines_of_a_zone_to_which_the_group_returns_are_billed_once() -> None:
    ticks = history((4, 4), *[(2, 4)] * 4, *[(4, 0)] * 20)

    outcome, without_idle_time = (
        run(ticks, replace(JOB, idle=idle)) for idle in (ChangeCost(1e9, "this test"), NO_COST)
    )

    zones = [tick.zone for tick in outcome.ticks]
    assert outcome.moves == 2
    assert (zones[0], zones[4], zones[-1]) == (0, 1, 0)
    billed_idle_seconds = outcome.spot_seconds - without_idle_time.spot_seconds
    assert billed_idle_seconds == 2 * zones.count(1) * GAP_SECONDS


def test_each_zone_has_its_price() -> None:
    prices = Prices(2.0, 3.0, spot_by_zone=(0.5, 2.0))
    job = replace(JOB, prices=prices)

    outcome = run(history((4, 0), (0, 4), (0, 4), (0, 4)), job)

    paid_prices = [prices.spot_in(tick.zone) * tick.spot for tick in outcome.ticks]
    assert paid_prices == [0.5 * 4, 0, 2.0 * 4, 2.0 * 4]
    assert outcome.usd == pytest.approx(sum(paid_prices) * GAP_SECONDS / HOUR_SECONDS)


def test_unused_machines_of_an_expensive_zone_have_its_price() -> None:
    job = replace(JOB, prices=Prices(99.0, 99.0, spot_by_zone=(0.0, 60.0)))

    outcome = run(history((1, 0), (1, 0), (1, 0), (1, 1), (1, 1)), job)

    assert {tick.zone for tick in outcome.ticks} == {0}, "one more machine is not worth a move"
    assert outcome.usd == pytest.approx(outcome.spot_seconds % GAP_SECONDS / HOUR_SECONDS * 60.0)
    assert outcome.usd > 0


def test_the_cheapest_of_equal_zones_is_entered() -> None:
    job = replace(JOB, prices=Prices(2.0, 3.0, spot_by_zone=(0.5, 2.0, 1.0)))

    outcome = run(history((4, 0, 0), (0, 4, 4), (0, 4, 4)), job)

    assert outcome.ticks[-1].zone == 2


def test_of_equal_offers_the_zone_in_which_fewer_machines_were_lost_is_entered() -> None:
    """The group loses its machines in b repeatedly, then leaves a when b and c offer the same."""
    flicker = [(0, 4, 0), (0, 0, 0)] * 40
    elsewhere, choice = [(4, 0, 0)] * 14, [(0, 4, 4)] * 3

    with_losses = run(history((0, 0, 0), *flicker, *elsewhere, *choice), SLOW_JOB)
    without_losses = run(history(*elsewhere, *choice), SLOW_JOB)

    assert with_losses.ticks[-len(choice) - 1].zone == 0
    assert with_losses.ticks[-1].zone == 2
    assert without_losses.ticks[-1].zone == 1


def test_the_old_zone_trains_until_the_new_one_does() -> None:
    job = replace(JOB, boot=ChangeCost(100, "this test"))
    ticks_without_offer, ticks_with_offer = ((1, 0),) * 3, ((1, 4),) * 3

    outcome = run(history(*ticks_without_offer, *ticks_with_offer), job)

    moved_tick = [tick.zone for tick in outcome.ticks].index(1)
    ticks = [(1, moved_tick), (4, 6 - moved_tick)]
    paid_seconds = sum(machines * count * GAP_SECONDS for machines, count in ticks) + 100
    assert outcome.spot_seconds == pytest.approx(paid_seconds), (
        "the machine that remains is paid for longer"
    )
    assert outcome.work_done == pytest.approx(paid_seconds - 100 - 4 * 100)


def test_a_zone_that_is_lost_when_the_group_moves_no_longer_trains() -> None:
    job = replace(JOB, boot=ChangeCost(100, "this test"))

    outcome = run(history(*((1, 0),) * 3, (0, 4), (0, 4)), job)

    assert [tick.zone for tick in outcome.ticks] == [0, 0, 0, 1, 1]
    assert outcome.spot_seconds == 3 * GAP_SECONDS + 2 * 4 * GAP_SECONDS


def test_a_move_does_not_save_the_work_that_is_lost_with_all_machines() -> None:
    job = replace(JOB, design=replace(FREE_DESIGN, checkpoint_seconds=30.0))

    outcome = run(history(*((1, 0),) * 3, (0, 4), (0, 4)), job)

    assert [tick.zone for tick in outcome.ticks] == [0, 0, 0, 1, 1]
    assert outcome.work_done == (3 + 2 * 4) * GAP_SECONDS - 30


def test_machines_that_a_search_finds_and_the_group_does_not_use_are_paid_for() -> None:
    outcome = run(history(*((2, 3),) * 6))

    assert outcome.moves == 0, "one machine more is not worth a move"
    assert outcome.spot_seconds > 6 * 2 * GAP_SECONDS


def test_a_group_below_its_minimum_does_not_train() -> None:
    outcome = run(history((1,), (2,)), replace(JOB, min_machines=2))

    assert outcome.work_done == 2 * GAP_SECONDS
    assert outcome.spot_seconds == 3 * GAP_SECONDS


def test_a_budget_suspends_the_job_before_it_is_exceeded() -> None:
    hour_usd = 4 * 1.0
    outcome = run(history(*((4,),) * 24), budget=hour_usd * 1.04)

    assert outcome.suspended
    assert outcome.seconds == HOUR_SECONDS
    assert outcome.usd <= hour_usd * 1.04


MOVING_TICKS = (*((1, 0),) * 3, *((1, 4),) * 6)
SEARCHING_TICKS = ((2, 3),) * 12


@pytest.mark.parametrize("ticks", [MOVING_TICKS, SEARCHING_TICKS])
def test_overlaps_searches_and_idle_machines_do_not_exceed_the_budget(
    ticks: tuple[tuple[int, int], ...],
) -> None:
    job = replace(JOB, boot=ChangeCost(250, "this test"), idle=ChangeCost(600, "this test"))
    cents = round(run(history(*ticks), job).usd * 100)

    outcomes = [
        (run(history(*ticks), job, budget=budget / 100).usd, budget / 100)
        for budget in range(10, cents)
    ]

    assert all(usd <= budget + 1e-9 for usd, budget in outcomes)


def test_on_demand_machines_train_without_any_spot_capacity() -> None:
    outcome = run(history((0,), (0,)), on_demand=OnDemand.ALWAYS)

    assert outcome.on_demand_seconds == 2 * 4 * GAP_SECONDS
    assert outcome.spot_seconds == 0
    assert outcome.usd == pytest.approx(4 * 3.0 * 600 / HOUR_SECONDS)


def test_a_group_that_is_to_run_on_demand_does_not_move_for_spot_machines() -> None:
    job = replace(JOB, work=10 * 4 * GAP_SECONDS)
    ticks = (*((0, 0),) * 6, *((0, 4),) * 10)

    outcome = run(history(*ticks), job, OnDemand.FALLBACK, deadline=12 * GAP_SECONDS)

    assert (outcome.complete, outcome.moves) == (True, 0)
    assert outcome.usd == pytest.approx(10 * 4 * 3.0 * GAP_SECONDS / HOUR_SECONDS)


def test_spot_machines_train_until_on_demand_machines_replace_them() -> None:
    """With constant capacity, the group loses no time when all its machines are to run on demand."""
    job = replace(JOB, work=10 * 4 * GAP_SECONDS, boot=ChangeCost(100, "this test"))
    ticks = history(*[(4,)] * 14)

    outcome = run(ticks, job, OnDemand.FALLBACK, deadline=10 * GAP_SECONDS + 450)
    with_idle_time = run(
        ticks,
        replace(job, idle=ChangeCost(500, "this test")),
        OnDemand.FALLBACK,
        deadline=10 * GAP_SECONDS + 450,
    )

    spot_ticks = [tick.spot for tick in outcome.ticks].index(0)
    assert spot_ticks > 0
    assert outcome.seconds == pytest.approx(job.shortest_seconds)
    assert outcome.spot_seconds == pytest.approx(4 * (spot_ticks * GAP_SECONDS + 100))
    assert with_idle_time.spot_seconds - outcome.spot_seconds == pytest.approx(4 * 500)


@pytest.mark.parametrize("slack_seconds", [1, 150, 300, 450, 600, 750, 900])
def test_with_constant_capacity_a_deadline_is_met_without_losing_time(slack_seconds: int) -> None:
    """The switch to on-demand machines does not restart the group, even while its first machines start."""
    deadline = REAL_JOB.shortest_seconds + slack_seconds

    outcome = run(history(*[(16,)] * 200), REAL_JOB, OnDemand.FALLBACK, deadline)

    assert REAL_JOB.shortest_seconds - 1e-6 <= outcome.seconds <= deadline


def test_bought_machines_bridge_the_start_of_spot_machines() -> None:
    """After the latest start, a spot machine that arrives replaces a bought machine one tick later."""
    job = replace(JOB, work=6 * 4 * GAP_SECONDS, boot=ChangeCost(100, "this test"))

    outcome = run(
        history((0,), (0,), (4,), (4,), (4,), (4,), (4,), (4,), (4,)),
        job,
        OnDemand.FALLBACK,
        deadline=8 * GAP_SECONDS,
    )

    assert [(tick.spot, tick.on_demand) for tick in outcome.ticks[:5]] == [
        (0, 4),
        (0, 4),
        (4, 4),
        (4, 0),
        (4, 0),
    ]
    assert outcome.work_done == pytest.approx(job.work)
    assert outcome.seconds == pytest.approx(6 * GAP_SECONDS + 100), (
        "a complete group is not faster with machines in reserve"
    )


def test_no_tick_has_more_on_demand_machines_than_the_pools_allow() -> None:
    job = replace(JOB, work=40 * 4 * GAP_SECONDS, max_on_demand=1)
    ticks = history(*[(0,), (3,), (4,), (1,)] * 40)

    for setting in (OnDemand.FALLBACK, OnDemand.ALWAYS):
        outcome = run(ticks, job, setting, deadline=41 * GAP_SECONDS)
        assert max(tick.on_demand for tick in outcome.ticks) == 1


def test_machines_of_an_on_demand_pool_are_not_bought_a_second_time() -> None:
    """The pool of the zone has two machines, which the group uses first; its spot pool has a fallback of one."""
    prices = Prices(1.0, 3.0, guaranteed_by_zone=(Guaranteed(2, 3.0),))
    job = replace(JOB, prices=prices, work=40 * 4 * GAP_SECONDS, max_on_demand=3)

    outcome = run(history(*[(2,)] * 60), job, OnDemand.FALLBACK, deadline=41 * GAP_SECONDS)

    assert {tick.on_demand for tick in outcome.ticks} == {1}


def test_the_fixed_costs_of_a_stack_are_paid_without_machines() -> None:
    outcome = run(history((0,), (0,)), replace(JOB, prices=Prices(1, 3, fixed=12)))

    assert outcome.usd == pytest.approx(2.0)


REAL_JOB = JobModel(work=16 * 12 * HOUR_SECONDS, machines=16, prices=Prices(0.3, 1.0))
MODEL = fit()


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 10_000), slack=st.floats(1, 3))
def test_a_deadline_with_two_ticks_of_slack_is_met_in_every_history(
    seed: int, slack: float
) -> None:
    deadline = REAL_JOB.shortest_seconds * slack + 2 * GAP_SECONDS
    hours = deadline / HOUR_SECONDS + 1
    generated_history = generate(MODEL, seed=seed, hours=hours, machines=16)

    parameters = parameters_of(REAL_JOB, GAP_SECONDS, deadline)
    outcome = simulate(
        generated_history, REAL_JOB, parameters, PlacementConfig(machines=16), latest_start
    )

    assert outcome.complete
    assert outcome.seconds <= deadline


@settings(max_examples=examples(25))
@given(
    ticks=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=60),
    gap=st.sampled_from((300.0, 900.0)),
    on_demand=st.sampled_from(OnDemand),
    slack=st.floats(1, 4),
)
def test_a_group_never_does_more_work_than_its_machines_can(
    ticks: list[tuple[int, int]], gap: float, on_demand: OnDemand, slack: float
) -> None:
    job = JobModel(work=4 * 20 * gap, machines=4, prices=Prices(1.0, 3.0))
    deadline = job.shortest_seconds * slack
    parameters = parameters_of(job, gap, deadline)

    outcome = simulate(
        CapacityHistory(("a", "b"), gap, tuple(ticks)),
        job,
        parameters,
        PlacementConfig(machines=4),
        POLICIES[on_demand],
    )

    assert 0 <= outcome.work_done <= 4 * outcome.seconds
    assert outcome.goodput <= 1
    assert outcome.usd == pytest.approx(
        (outcome.spot_seconds * 1.0 + outcome.on_demand_seconds * 3.0) / HOUR_SECONDS
    )


@settings(max_examples=examples(25))
@given(seed=st.integers(0, 10_000))
def test_spot_machines_do_no_more_work_than_the_market_offers_or_bought_machines_do(
    seed: int,
) -> None:
    generated_history = generate(MODEL, seed=seed, hours=60, machines=16)
    job = replace(REAL_JOB, work=1e12)
    offered_seconds = sum(max(tick) for tick in generated_history.machines) * GAP_SECONDS

    parameters = parameters_of(job, GAP_SECONDS)
    spot_outcome = simulate(generated_history, job, parameters, PlacementConfig(machines=16), never)
    on_demand_outcome = simulate(
        generated_history, job, parameters, PlacementConfig(machines=16), always
    )

    assert spot_outcome.work_done <= offered_seconds, (
        "more work than the best zone of each moment offered"
    )
    assert spot_outcome.goodput <= 1
    assert on_demand_outcome.work_done >= spot_outcome.work_done, (
        "the market never offers more machines than can be bought"
    )
    assert spot_outcome.moves <= 60, "at most one move per hour"


def test_without_a_deadline_machines_are_bought_for_the_smallest_group_after_a_while() -> None:
    job = replace(JOB, min_machines=3)
    outcome = run(history(*[(2,)] * 8), job, OnDemand.FALLBACK)

    bought = [tick.on_demand for tick in outcome.ticks]
    first = int(FALLBACK_AFTER_SECONDS / GAP_SECONDS)
    assert bought == [0] * first + [1] * (8 - first), "two spot machines are not enough"
