"""The estimate of lifetimes: the prior, losses, the decay of old observations, and the productive share."""

import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everstep.capacity.job import JobModel, Prices
from everstep.capacity.lifetimes import (
    HALF_LIFE_SECONDS,
    PRIOR_LIFETIME_SECONDS,
    PRIOR_LOSSES,
    PRIOR_SECONDS,
    START_SECONDS,
    LifetimeRecord,
    productive_share,
    weighted_seconds,
)
from everstep.catalog.units import HOUR_SECONDS

seconds = st.floats(0, 1e8)
losses = st.floats(0, 1e4)
records = st.builds(LifetimeRecord, seconds, losses)
ages = st.floats(0, 20 * HALF_LIFE_SECONDS)


def test_a_zone_without_observations_has_the_prior_lifetime() -> None:
    assert LifetimeRecord().expected_seconds == PRIOR_LIFETIME_SECONDS == 4 * HOUR_SECONDS


def test_many_observations_outweigh_the_prior() -> None:
    record = LifetimeRecord(seconds=1000 * HOUR_SECONDS, losses=100)

    assert record.expected_seconds == pytest.approx(10 * HOUR_SECONDS, rel=0.03)


def test_observations_and_prior_weigh_the_same_after_as_many_losses_as_the_prior_has() -> None:
    record = LifetimeRecord(seconds=3 * PRIOR_SECONDS, losses=PRIOR_LOSSES)

    assert record.expected_seconds == 2 * PRIOR_LIFETIME_SECONDS


@given(record=records, more=losses)
def test_more_losses_in_the_same_time_never_lengthen_the_lifetime(
    record: LifetimeRecord, more: float
) -> None:
    assert record.plus(0, more).expected_seconds <= record.expected_seconds


@given(record=records, more=seconds)
def test_more_time_with_the_same_losses_never_shortens_the_lifetime(
    record: LifetimeRecord, more: float
) -> None:
    assert record.plus(more, 0).expected_seconds >= record.expected_seconds


@given(record=records, age=ages)
def test_an_old_observation_decays_towards_the_prior_and_keeps_its_ratio(
    record: LifetimeRecord, age: float
) -> None:
    decayed = record.decayed(age)

    assert decayed.seconds * record.losses == pytest.approx(record.seconds * decayed.losses)
    low, high = sorted((record.expected_seconds, PRIOR_LIFETIME_SECONDS))
    assert low * (1 - 1e-9) <= decayed.expected_seconds <= high * (1 + 1e-9)


def test_an_observation_has_half_of_its_weight_after_the_half_life() -> None:
    assert LifetimeRecord(8.0, 2.0).decayed(HALF_LIFE_SECONDS) == LifetimeRecord(4.0, 1.0)


def test_a_clock_that_goes_back_changes_no_weight() -> None:
    assert LifetimeRecord(8.0, 2.0).decayed(-60) == LifetimeRecord(8.0, 2.0)
    assert weighted_seconds(-60) == 0
    assert weighted_seconds(60, -60) == weighted_seconds(60)


def test_recent_machine_time_counts_in_full_and_old_machine_time_less() -> None:
    assert weighted_seconds(60) == pytest.approx(60, rel=1e-3)
    assert weighted_seconds(HALF_LIFE_SECONDS + 60, HALF_LIFE_SECONDS) == pytest.approx(
        30, rel=1e-3
    )


@given(parts=st.lists(ages, min_size=1, max_size=5))
@example(parts=[1e-05, 1e-06])
def test_machine_time_does_not_depend_on_how_often_it_is_counted(parts: list[float]) -> None:
    record = LifetimeRecord()
    for part in parts:
        record = record.decayed(part).plus(weighted_seconds(part), 0)

    assert record.seconds == pytest.approx(weighted_seconds(sum(parts)))


@given(lifetime=st.floats(1, 1e7), longer=st.floats(0, 1e7), start=st.floats(0, 1e4))
def test_a_longer_life_is_never_less_productive(
    lifetime: float, longer: float, start: float
) -> None:
    share = productive_share(lifetime, start)

    rounding = 4 * sys.float_info.epsilon
    assert 0 < share <= productive_share(lifetime + longer, start) + rounding <= 1 + rounding


def test_a_machine_that_lives_as_long_as_its_start_takes_trains_half_of_the_time() -> None:
    assert productive_share(300, 300) == 0.5


def test_the_start_of_a_machine_takes_as_long_as_in_a_plan() -> None:
    job = JobModel(work=1.0, machines=1, prices=Prices(1.0, 3.0))

    assert job.start_seconds == pytest.approx(START_SECONDS, abs=1)
