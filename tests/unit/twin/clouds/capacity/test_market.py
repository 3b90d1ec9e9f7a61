"""The spot market against the published statistics that it is fitted to (see `twin.clouds.capacity.market`)."""

from itertools import islice, pairwise, takewhile
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, integers, text

from twin.clouds.capacity import market
from twin.clouds.capacity.market import Parameters

HOURS = 350  # the published traces last 271 to 428
SEEDS = range(25)
PUBLISHED_CHANGES_PER_HOUR = (0.29, 1.05)
PUBLISHED_TIMES_AT_ZERO = (14, 98)


def trace(seed, most, parameters=None, hours=HOURS):
    end = hours * market.HOUR_SECONDS
    return list(takewhile(lambda c: c.at < end, market.changes(str(seed), most, parameters)))


def changes_per_hour(changes, hours=HOURS):
    return (len(changes) - 1) / hours


def times_at_zero(changes):
    return sum(change.machines == 0 for change in changes)


@pytest.mark.parametrize("most", [4, 16])
def test_every_trace_has_as_many_changes_and_losses_of_all_as_the_published_ones(most):
    traces = [trace(seed, most) for seed in SEEDS]

    least, highest = PUBLISHED_CHANGES_PER_HOUR
    assert all(least <= changes_per_hour(changes) <= highest for changes in traces)
    fewest, greatest = PUBLISHED_TIMES_AT_ZERO
    assert all(fewest <= times_at_zero(changes) <= greatest for changes in traces)


@pytest.mark.parametrize("rate", PUBLISHED_CHANGES_PER_HOUR)
def test_the_rate_of_changes_is_the_one_asked_for(rate):
    seen = mean(changes_per_hour(trace(s, 16, Parameters(changes_per_hour=rate))) for s in SEEDS)

    assert seen == pytest.approx(rate, rel=0.1)


def test_a_market_that_sweeps_loses_all_more_often():
    calm, rough = Parameters(sweep=0.05), Parameters(sweep=0.6)

    at_zero = [mean(times_at_zero(trace(s, 16, p)) for s in SEEDS) for p in (calm, rough)]

    assert at_zero[1] > 2 * at_zero[0]


@settings(max_examples=50, deadline=None)
@given(seed=text(max_size=8), most=integers(1, 32), sweep=floats(0, 1), step=floats(0, 0.99))
def test_room_stays_within_bounds_and_every_change_changes_something(seed, most, sweep, step):
    parameters = Parameters(sweep=sweep, step=step)

    seen = list(islice(market.changes(seed, most, parameters), 60))

    assert (seen[0].at, seen[0].machines) == (0.0, most), "a market begins with room for all"
    assert all(0 <= change.machines <= most for change in seen)
    for before, after in pairwise(seen):
        assert after.at > before.at
        assert after.machines != before.machines


@settings(max_examples=30, deadline=None)
@given(seed=text(max_size=8), most=integers(1, 32), seconds=floats(0, 1e5))
def test_the_same_seed_gives_the_same_market_and_room_is_what_the_last_change_left(
    seed, most, seconds
):
    room = market.room(seed, most, seconds)

    passed = takewhile(lambda change: change.at <= seconds, market.changes(seed, most))
    assert room == list(passed)[-1].machines == market.room(seed, most, seconds)


@pytest.mark.parametrize(
    "wrong", [{"changes_per_hour": 0}, {"sweep": 1.2}, {"flood": -0.1}, {"step": 1}]
)
def test_a_market_that_cannot_be_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Parameters(**wrong)
