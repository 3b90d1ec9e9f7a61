"""The on-demand policies: when each buys, and what a deadline and a budget allow."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.capacity.on_demand import (
    FALLBACK_AFTER_SECONDS,
    LOSSES_IN_RESERVE,
    LOSSES_PER_SECOND,
    JobParameters,
    JobProgress,
    always,
    greedy,
    latest_start,
    margin_seconds,
    never,
    uniform_progress,
    within_budget,
)

HOUR = 3600.0
PARAMETERS = JobParameters(work=10 * 12 * HOUR, machines=10, deadline_seconds=24 * HOUR)
NO_DEADLINE = JobParameters(work=10 * 12 * HOUR, machines=10, min_machines=2)


def progress_at(hours: float, done_hours: float, spot: int = 0, on_demand: int = 0) -> JobProgress:
    """Return the progress after `hours`; `done_hours` is the completed work, in hours of all machines."""
    return JobProgress(hours * HOUR, done_hours * 10 * HOUR, spot, on_demand)


def test_the_margin_is_the_time_beyond_the_work_with_all_machines() -> None:
    assert margin_seconds(PARAMETERS, progress_at(6, 4)) == (24 - 6 - 8) * HOUR
    assert margin_seconds(NO_DEADLINE, progress_at(6, 4)) == float("inf")


def test_with_time_to_spare_no_machine_is_bought() -> None:
    assert latest_start(PARAMETERS, progress_at(10, 0)).on_demand == 0


def test_from_the_latest_start_missing_machines_are_bought_and_spot_machines_kept() -> None:
    purchase = latest_start(PARAMETERS, progress_at(11.6, 0, spot=4))

    assert (purchase.on_demand, purchase.use_spot) == (6, True)


def test_the_reserve_for_losses_covers_the_time_that_the_work_takes_at_the_goodput() -> None:
    slow = replace(PARAMETERS, goodput=0.5)
    seconds_left = 2 * 12 * HOUR
    reserve = slow.pass_seconds + slow.start_seconds * (1 + 2 + 0.5 * 24)

    def bought(seconds_before: float) -> int:
        parameters = replace(slow, deadline_seconds=seconds_left + reserve + seconds_before)
        return latest_start(parameters, progress_at(0, 0)).on_demand

    assert bought(1) == 0
    assert bought(-1) == 10


def test_bought_machines_are_kept_until_the_spot_machines_that_replace_them_train() -> None:
    during_replacement = JobProgress(11.6 * HOUR, 0, spot=4, on_demand=6, starting=6)
    at_start = JobProgress(11.6 * HOUR, 0, spot=0, on_demand=0, starting=7)

    assert latest_start(PARAMETERS, during_replacement).on_demand == 6
    assert latest_start(PARAMETERS, at_start).on_demand == 3, (
        "a bought machine would start no sooner"
    )


def test_with_little_reserve_left_all_machines_are_on_demand() -> None:
    purchase = latest_start(PARAMETERS, progress_at(11.9, 0, spot=4))

    assert (purchase.on_demand, purchase.use_spot) == (10, False)


def test_a_long_job_buys_machines_earlier_than_a_short_one() -> None:
    """For every two hours of remaining work, one more loss of all spot machines is expected."""
    long_job = JobParameters(work=10 * 48 * HOUR, machines=10, deadline_seconds=60 * HOUR)
    margin_hours = 1.0

    assert latest_start(PARAMETERS, progress_at(12 - margin_hours, 0)).on_demand == 0
    assert latest_start(long_job, progress_at(12 - margin_hours, 0)).on_demand == 10


def test_bought_machines_are_kept_until_the_reserve_has_grown() -> None:
    # A start and a pass, and one start for each loss that may still occur in 12 hours of work.
    losses = LOSSES_IN_RESERVE + LOSSES_PER_SECOND * 12 * HOUR
    reserve = PARAMETERS.start_seconds + PARAMETERS.pass_seconds + losses * PARAMETERS.start_seconds
    just_above = 12 - (reserve + 1) / HOUR
    one_pass_above = just_above - PARAMETERS.pass_seconds / HOUR

    assert latest_start(PARAMETERS, progress_at(just_above, 0)).on_demand == 0
    assert latest_start(PARAMETERS, progress_at(just_above, 0, on_demand=10)).on_demand == 10
    assert latest_start(PARAMETERS, progress_at(one_pass_above, 0, on_demand=10)).on_demand == 0


def test_without_a_deadline_the_smallest_group_is_bought_after_a_while_without_spot() -> None:
    def bought_after(seconds: float, spot: int = 0, on_demand: int = 0) -> int:
        progress = JobProgress(HOUR, 0, spot, on_demand, below_min_seconds=seconds)
        return latest_start(NO_DEADLINE, progress).on_demand

    assert bought_after(FALLBACK_AFTER_SECONDS - 1) == 0
    assert bought_after(FALLBACK_AFTER_SECONDS) == 2
    assert bought_after(0, spot=1, on_demand=2) == 1, "spot machines replace bought ones"
    assert bought_after(0, spot=2, on_demand=1) == 0


def test_greedy_uses_spot_only_until_the_last_moment_and_then_no_spot() -> None:
    assert greedy(PARAMETERS, progress_at(11.5, 0, spot=3)).on_demand == 0
    purchase = greedy(PARAMETERS, progress_at(11.9, 0, spot=3))
    assert (purchase.on_demand, purchase.use_spot) == (10, False)


def test_uniform_progress_buys_when_it_is_behind_and_stops_when_it_is_ahead() -> None:
    assert uniform_progress(PARAMETERS, progress_at(6, 2.9, spot=1)).on_demand == 9
    assert uniform_progress(PARAMETERS, progress_at(6, 3)).on_demand == 0
    assert uniform_progress(PARAMETERS, progress_at(6, 3, on_demand=9)).on_demand == 10, (
        "hysteresis"
    )
    assert uniform_progress(NO_DEADLINE, progress_at(6, 0)).on_demand == 0


def test_never_and_always_do_not_depend_on_the_progress() -> None:
    assert never(PARAMETERS, progress_at(23.9, 0)).on_demand == 0
    assert always(PARAMETERS, progress_at(0, 0, spot=10)) == always(PARAMETERS, progress_at(11, 0))
    assert not always(PARAMETERS, progress_at(0, 0)).use_spot


LIMITED = replace(PARAMETERS, max_on_demand=2)


def test_the_margin_counts_only_on_the_machines_that_the_pools_allow() -> None:
    roomy = replace(LIMITED, deadline_seconds=100 * HOUR)

    assert margin_seconds(roomy, progress_at(6, 4)) == (100 - 6 - 8 * 10 / 2) * HOUR
    assert margin_seconds(replace(roomy, max_on_demand=99), progress_at(6, 4)) == 86 * HOUR
    assert margin_seconds(replace(roomy, max_on_demand=0), progress_at(6, 4)) == float("-inf")


def test_with_few_on_demand_machines_they_are_bought_earlier_and_spot_machines_stay() -> None:
    assert latest_start(PARAMETERS, progress_at(6, 4, spot=4)).on_demand == 0

    purchase = latest_start(LIMITED, progress_at(6, 4, spot=4))

    assert (purchase.on_demand, purchase.use_spot) == (2, True)
    assert "the pools allow 2" in purchase.reason
    assert latest_start(LIMITED, progress_at(6, 4, spot=9)).on_demand == 1
    assert not always(LIMITED, progress_at(6, 4)).use_spot


def test_without_a_deadline_no_more_machines_are_bought_than_the_pools_allow() -> None:
    starved = JobProgress(HOUR, 0, 0, 0, below_min_seconds=FALLBACK_AFTER_SECONDS)

    assert latest_start(replace(NO_DEADLINE, max_on_demand=1), starved).on_demand == 1
    assert latest_start(replace(NO_DEADLINE, max_on_demand=0), starved).on_demand == 0


@given(
    hours=st.floats(0, 30),
    done_hours=st.floats(0, 12),
    spot=st.integers(0, 10),
    on_demand=st.integers(0, 10),
    allowed=st.integers(0, 12),
)
def test_no_purchase_exceeds_the_machines_that_the_pools_allow(
    hours: float, done_hours: float, spot: int, on_demand: int, allowed: int
) -> None:
    for policy in (never, always, greedy, uniform_progress, latest_start):
        for base in (PARAMETERS, NO_DEADLINE):
            parameters = replace(base, max_on_demand=allowed)
            purchase = policy(parameters, progress_at(hours, done_hours, spot, on_demand))
            assert 0 <= purchase.on_demand <= allowed
            if policy is not always and allowed < parameters.machines:
                assert purchase.use_spot, "a group without spot machines would be smaller"


@pytest.mark.parametrize(("spent_usd", "expected"), [(9.0, True), (9.001, False)])
def test_a_pass_is_paid_for_within_the_budget_only(spent_usd: float, expected: bool) -> None:
    parameters = JobParameters(work=1, machines=1, budget_usd=10)

    assert within_budget(parameters, spent_usd, 1.0) is expected
    assert within_budget(NO_DEADLINE, spent_usd, 1.0), "without a budget everything is paid for"


@given(
    hours=st.floats(0, 30),
    done_hours=st.floats(0, 12),
    spot=st.integers(0, 10),
    on_demand=st.integers(0, 10),
)
def test_no_purchase_exceeds_the_missing_machines_and_each_has_a_reason(
    hours: float, done_hours: float, spot: int, on_demand: int
) -> None:
    for policy in (never, always, greedy, uniform_progress, latest_start):
        for parameters in (PARAMETERS, NO_DEADLINE):
            purchase = policy(parameters, progress_at(hours, done_hours, spot, on_demand))
            used_spot = spot if purchase.use_spot else 0
            assert purchase.reason
            assert 0 <= purchase.on_demand <= max(0, 10 - used_spot)


@given(hours=st.floats(0, 24), done_hours=st.floats(0, 12), spot=st.integers(0, 10))
def test_a_job_with_less_time_never_buys_less(hours: float, done_hours: float, spot: int) -> None:
    bought_early = latest_start(PARAMETERS, progress_at(hours, done_hours, spot)).on_demand
    bought_late = latest_start(PARAMETERS, progress_at(hours + 0.1, done_hours, spot)).on_demand

    assert bought_late >= bought_early
