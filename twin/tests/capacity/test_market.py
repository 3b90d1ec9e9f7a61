"""The spot market against the published statistics that it is fitted to (see `cloudtwin.capacity.market`)."""

from collections.abc import Sequence
from itertools import islice, pairwise, takewhile
from statistics import mean
from typing import Any

import pytest
from cloudtwin.capacity import market
from cloudtwin.capacity.market import CapacityChange, MarketParameters, MarketSeeds
from hypothesis import given, settings
from hypothesis.strategies import floats, integers, text

HOURS = 350  # the published traces last 271 to 428
SEEDS = range(25)
PUBLISHED_CHANGES_PER_HOUR = (0.29, 1.05)
PUBLISHED_TIMES_AT_ZERO = (14, 98)


def trace(
    seeds: str | MarketSeeds, max_machines: int, parameters: MarketParameters | None = None
) -> list[CapacityChange]:
    """Return the changes of a market in its first `HOURS` hours."""
    end = HOURS * market.HOUR_SECONDS
    changes = market.changes(seeds, max_machines, parameters)
    return list(takewhile(lambda change: change.at_seconds < end, changes))


def changes_per_hour(changes: Sequence[CapacityChange]) -> float:
    return (len(changes) - 1) / HOURS  # the first is the start of the market


def times_at_zero(changes: Sequence[CapacityChange]) -> int:
    return sum(change.machines == 0 for change in changes)


@pytest.mark.parametrize("max_machines", [4, 16])
def test_every_trace_has_as_many_changes_and_losses_of_all_machines_as_the_published_traces(
    max_machines: int,
) -> None:
    traces = [trace(str(seed), max_machines) for seed in SEEDS]

    min_rate, max_rate = PUBLISHED_CHANGES_PER_HOUR
    assert all(min_rate <= changes_per_hour(changes) <= max_rate for changes in traces)
    min_times, max_times = PUBLISHED_TIMES_AT_ZERO
    assert all(min_times <= times_at_zero(changes) <= max_times for changes in traces)


@pytest.mark.parametrize("rate", PUBLISHED_CHANGES_PER_HOUR)
def test_the_rate_of_changes_equals_the_configured_rate(rate: float) -> None:
    observed = mean(
        changes_per_hour(trace(str(s), 16, MarketParameters(changes_per_hour=rate))) for s in SEEDS
    )

    assert observed == pytest.approx(rate, rel=0.1)


def test_a_higher_share_of_losses_of_all_machines_gives_more_times_at_zero() -> None:
    stable, volatile = (
        MarketParameters(total_loss_share=0.05),
        MarketParameters(total_loss_share=0.6),
    )

    at_zero = [mean(times_at_zero(trace(str(s), 16, p)) for s in SEEDS) for p in (stable, volatile)]

    assert at_zero[1] > 2 * at_zero[0]


@settings(max_examples=50)
@given(
    seed=text(max_size=8),
    max_machines=integers(1, 32),
    total_loss_share=floats(0, 1),
    next_machine_chance=floats(0, 0.99),
)
def test_capacity_stays_within_bounds_and_every_change_changes_it(
    seed: str, max_machines: int, total_loss_share: float, next_machine_chance: float
) -> None:
    parameters = MarketParameters(
        total_loss_share=total_loss_share, next_machine_chance=next_machine_chance
    )

    observed = list(islice(market.changes(seed, max_machines, parameters), 60))

    assert (observed[0].at_seconds, observed[0].machines) == (0.0, max_machines), (
        "a market begins with full capacity"
    )
    assert all(0 <= change.machines <= max_machines for change in observed)
    for before, after in pairwise(observed):
        assert after.at_seconds > before.at_seconds
        assert after.machines != before.machines


@settings(max_examples=30)
@given(seed=text(max_size=8), max_machines=integers(1, 32), seconds=floats(0, 1e5))
def test_the_same_seed_gives_the_same_market_with_the_capacity_of_its_last_change(
    seed: str, max_machines: int, seconds: float
) -> None:
    capacity = market.capacity_at(seed, max_machines, seconds)

    past_changes = takewhile(
        lambda change: change.at_seconds <= seconds, market.changes(seed, max_machines)
    )
    assert (
        capacity
        == list(past_changes)[-1].machines
        == market.capacity_at(seed, max_machines, seconds)
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"changes_per_hour": 0},
        {"total_loss_share": 1.2},
        {"total_return_share": -0.1},
        {"next_machine_chance": 1},
        {"region_share": 1.1},
        {"region_share": 0.6, "zone_share": 0.5},
    ],
)
def test_invalid_market_parameters_are_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(parameters))}="):
        MarketParameters(**parameters)


def test_a_market_without_machines_is_refused() -> None:
    with pytest.raises(ValueError, match="max_machines=0 must be at least 1"):
        next(market.changes("seed", 0))


def outages(seeds: MarketSeeds, parameters: MarketParameters | None = None) -> list[bool]:
    """Return one value for every five minutes of 1000 hours: True while a pool of 16 machines has none."""
    changes = market.changes(seeds, 16, parameters)
    machines, change = 16, next(changes)
    series = []
    for tick in range(12_000):
        while change.at_seconds <= tick * 300:
            machines, change = change.machines, next(changes)
        series.append(machines == 0)
    return series


def joint_share(series: Sequence[Sequence[bool]]) -> float:
    """Return the share of time for which all pools have an outage."""
    return mean(all(tick) for tick in zip(*series, strict=True))


def seeds_of_region(seed: int) -> list[MarketSeeds]:
    """Return the seeds of one pool in each of three zones of a region."""
    return [MarketSeeds(f"{seed}/{n}", f"{seed}/zone {n}", f"{seed}/region") for n in range(3)]


def test_zones_lose_all_machines_together_as_often_as_in_the_latent_variable_model() -> None:
    regions = [seeds_of_region(seed) for seed in range(12)]
    independent = MarketParameters(region_share=0, zone_share=0)

    shares = [joint_share([outages(seeds) for seeds in zones]) for zones in regions]
    independent_shares = [
        joint_share([outages(seeds, independent) for seeds in zones]) for zones in regions
    ]

    expected_share = 0.043  # of the latent-variable model, see market.REGION_SHARE
    assert mean(shares) == pytest.approx(expected_share, rel=0.25)
    assert mean(independent_shares) < 0.01


def test_pools_of_a_zone_lose_their_machines_together_more_often_than_zones_of_a_region() -> None:
    in_zone, in_region = [], []
    for seed in range(8):
        first, other_zone, _ = seeds_of_region(seed)
        same_zone = MarketSeeds(f"{seed}/other", first.zone, first.region)
        in_zone.append(joint_share([outages(first), outages(same_zone)]))
        in_region.append(joint_share([outages(first), outages(other_zone)]))

    assert mean(in_zone) > 1.3 * mean(in_region)


def test_shared_changes_do_not_change_the_statistics_of_a_pool() -> None:
    shares = [mean(outages(seeds_of_region(seed)[0])) for seed in range(12)]
    independent_shares = [mean(outages(MarketSeeds(str(seed)))) for seed in range(12)]
    rates = [changes_per_hour(trace(seeds_of_region(seed)[0], 16)) for seed in SEEDS]

    assert mean(shares) == pytest.approx(mean(independent_shares), rel=0.2)
    assert mean(rates) == pytest.approx(MarketParameters().changes_per_hour, rel=0.1)


def test_the_capacity_is_full_before_the_start_of_a_market() -> None:
    assert market.capacity_at("seed", 4, -1.0) == 4, (
        "the daemon must not end when the host's clock is set back"
    )
