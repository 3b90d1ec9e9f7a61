"""Plans: choices, refusals before anything is bought, and summaries of outcomes."""

from dataclasses import replace
from math import ceil, inf

import pytest

from everstep.capacity.generator import fit, generate
from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import JobModel, Prices
from everstep.capacity.on_demand import FallbackPolicy, OnDemand
from everstep.capacity.plan import (
    Choice,
    JobLimits,
    Spread,
    check,
    choices,
    generated_histories,
    histories_of,
    horizon_seconds,
    replay,
    spread,
    summary,
)
from everstep.capacity.simulator import Outcome
from everstep.catalog.units import HOUR_SECONDS
from everstep.errors import EverstepError

JOB = JobModel(work=4 * 10 * HOUR_SECONDS, machines=4, prices=Prices(1.0, 3.0, fixed=0.5))
TRACE = CapacityHistory(("a", "b"), 300.0, ((0, 9), (4, 4), (2, 0)))


def test_zones_are_combined_with_and_without_a_fallback() -> None:
    assert list(choices(2)) == [
        Choice(1, OnDemand.NEVER),
        Choice(1, OnDemand.FALLBACK),
        Choice(2, OnDemand.NEVER),
        Choice(2, OnDemand.FALLBACK),
        Choice(1, OnDemand.ALWAYS),
    ]


def test_with_a_deadline_the_baselines_are_compared_in_all_zones() -> None:
    baselines = [choice for choice in choices(2, has_deadline=True) if choice not in choices(2)]

    assert baselines == [
        Choice(2, OnDemand.FALLBACK, FallbackPolicy.UNIFORM_PROGRESS),
        Choice(2, OnDemand.FALLBACK, FallbackPolicy.GREEDY),
    ]


def test_types_are_compared_in_all_zones_or_in_every_combination() -> None:
    few = [choice for choice in choices(2, ("a", "b")) if choice.machine_type]
    assert few == [Choice(2, OnDemand.FALLBACK, machine_type=name) for name in ("a", "b")]
    assert not any(choice.machine_type for choice in choices(2, ("a",))), (
        "a single type is not compared"
    )

    everything = list(choices(2, ("a", "b"), has_deadline=True, everything=True))
    assert len(everything) == len(set(everything)) == 3 * (2 * 4 + 1)
    assert Choice(1, OnDemand.FALLBACK, FallbackPolicy.GREEDY, "b") in everything


def test_each_policy_is_replayed() -> None:
    empty_history = CapacityHistory(("a",), 300.0, ((0,),) * 400)
    limits = JobLimits(deadline_seconds=24 * HOUR_SECONDS)

    latest, uniform = (
        replay(empty_history, Choice(1, OnDemand.FALLBACK, fallback), JOB, limits)
        for fallback in (FallbackPolicy.LATEST_START, FallbackPolicy.UNIFORM_PROGRESS)
    )

    assert latest.complete
    assert uniform.complete
    assert uniform.on_demand_seconds != latest.on_demand_seconds


def test_a_deadline_that_no_policy_can_meet_is_refused_with_the_earliest_possible() -> None:
    with pytest.raises(EverstepError) as error:
        check({"": JOB}, JobLimits(deadline_seconds=9 * HOUR_SECONDS))

    assert "--deadline 9h cannot be met: 40 machine-hours on 4 machines" in error.value.problem
    assert "at least 10.1 h" in error.value.problem
    assert "10.1h or more" in error.value.fix


def test_the_earliest_deadline_that_the_refusal_names_is_accepted_and_met() -> None:
    limits = JobLimits(deadline_seconds=10.1 * HOUR_SECONDS)

    check({"": JOB}, limits)

    empty_history = CapacityHistory(("a",), 60.0, ((0,),) * 700)
    outcome = replay(empty_history, Choice(1, OnDemand.FALLBACK), JOB, limits)
    assert outcome.complete
    assert outcome.seconds <= 10.1 * HOUR_SECONDS


@pytest.mark.parametrize("hours", [0.1, 0.5, 1.0, 2.0, 12.0])
def test_with_all_machines_a_job_takes_the_shortest_time_and_meets_the_earliest_deadline(
    hours: float,
) -> None:
    job = replace(JOB, work=4 * hours * HOUR_SECONDS)
    earliest = ceil(job.shortest_seconds / HOUR_SECONDS * 10) / 10 * HOUR_SECONDS
    with pytest.raises(EverstepError, match=f"{earliest / HOUR_SECONDS:g}h or more"):
        check({"": job}, JobLimits(deadline_seconds=60))
    history = CapacityHistory(("a",), 300.0, ((4,),) * 200)
    limits = JobLimits(deadline_seconds=earliest)

    outcome = replay(history, Choice(1, OnDemand.ALWAYS), job, limits)

    assert outcome.seconds == pytest.approx(job.shortest_seconds, abs=1)
    assert outcome.usd == pytest.approx((4 * 3 + 0.5) * outcome.seconds / HOUR_SECONDS)
    assert summary(Choice(1, OnDemand.ALWAYS), [outcome], limits).in_time == 1


def test_a_budget_below_the_cost_of_one_hour_is_refused() -> None:
    check({"": JOB}, JobLimits(budget_usd=4.5))

    with pytest.raises(
        EverstepError, match=r"--budget 4.49 is below the cost of one hour.*4.50 USD"
    ):
        check({"": JOB}, JobLimits(budget_usd=4.49))


def test_a_limit_that_only_one_machine_type_can_meet_is_accepted() -> None:
    fast_job = replace(JOB, work=JOB.work / 2, prices=Prices(2.0, 6.0, fixed=0.5))
    jobs = {"": replace(JOB, prices=fast_job.prices), "slow": JOB, "fast": fast_job}

    check(jobs, JobLimits(deadline_seconds=6 * HOUR_SECONDS))
    check(jobs, JobLimits(budget_usd=4.5))

    with pytest.raises(EverstepError, match="20 machine-hours on 4 machines of type fast"):
        check(jobs, JobLimits(deadline_seconds=5 * HOUR_SECONDS))
    with pytest.raises(EverstepError, match=r"4 machines of type slow .* 4\.50 USD an hour"):
        check(jobs, JobLimits(budget_usd=4.49))


def test_a_job_of_years_is_refused() -> None:
    with pytest.raises(EverstepError, match="too long to plan"):
        horizon_seconds(replace(JOB, work=4 * 20_000 * HOUR_SECONDS), JobLimits())


def test_histories_outlast_the_deadline() -> None:
    assert horizon_seconds(JOB, JobLimits()) > 6 * JOB.shortest_seconds
    assert horizon_seconds(JOB, JobLimits(deadline_seconds=1e6)) == 2e6


def test_a_trace_is_repeated_from_several_start_ticks() -> None:
    histories = list(histories_of(TRACE, 3, seconds=1000, machines=4))

    assert [history.machines[0] for history in histories] == [(0, 4), (4, 4), (2, 0)]
    assert all(len(history.machines) == 6 for history in histories), "two rounds of three ticks"
    assert histories[1].machines[:3] == ((4, 4), (2, 0), (0, 4))


def test_a_trace_with_another_interval_is_sampled_every_five_minutes() -> None:
    hourly_trace = CapacityHistory(("a",), 3600.0, ((1,), (2,)))
    history = next(histories_of(hourly_trace, 1, seconds=7200, machines=4))
    assert history.gap_seconds == 300
    assert [tick[0] for tick in history.machines] == [1] * 12 + [2] * 12

    minute_trace = CapacityHistory(("a",), 60.0, tuple((number,) for number in range(11)))
    history = next(histories_of(minute_trace, 1, seconds=600, machines=99))
    assert [tick[0] for tick in history.machines] == [0, 5]

    second_trace = CapacityHistory(("a",), 1.0, ((3,),))
    assert next(histories_of(second_trace, 1, seconds=300, machines=4)).machines == ((3,),)


def test_generated_zones_take_turns_at_being_the_better_one() -> None:
    histories = list(generated_histories(3, 7, 50, 16, ("a", "b")))

    assert len(histories) == 3
    for number, history in enumerate(histories):
        market = generate(fit(), seed=7 + number, hours=50, machines=16)
        expected = market.with_zones([number, (number + 1) % 3])
        assert history.machines == expected.machines
        assert history.zones == ("a", "b")


def outcome(seconds: float, usd: float, *, complete: bool = True) -> Outcome:
    return Outcome(
        seconds=seconds,
        complete=complete,
        suspended=not complete,
        usd=usd,
        work_done=seconds,
        spot_seconds=2 * seconds,
        on_demand_seconds=0,
        moves=0,
    )


def test_a_summary_counts_histories_in_time_and_those_that_never_complete() -> None:
    outcomes = [outcome(10, 1), outcome(20, 2), outcome(30, 3), outcome(5, 4, complete=False)]

    row = summary(Choice(1, OnDemand.NEVER), outcomes, JobLimits(deadline_seconds=20))

    assert row.seconds == Spread(10, 30, inf)
    assert row.usd == Spread(1, 3, 4)
    assert row.goodput == Spread(0.5, 0.5, 0.5)
    assert (row.complete, row.in_time, row.suspended) == (0.75, 0.5, 0.25)
    assert summary(Choice(1, OnDemand.NEVER), outcomes, JobLimits()).in_time is None


def test_percentiles_are_values_of_histories() -> None:
    assert spread(range(101)) == Spread(10, 50, 90)
    assert spread([7.0]) == Spread(7, 7, 7)
