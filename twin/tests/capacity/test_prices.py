"""The price of spot machines over time."""

import pytest
from cloudfacts import prices as table
from cloudtwin.capacity import prices
from cloudtwin.capacity.config import MarketConfig
from hypothesis import given
from hypothesis.strategies import floats, text

from twin.tests.capacity.builders import pool

HOUR_SECONDS = 3600.0
POOL = pool(zone="us-east-1a", region="us-east-1")
LISTED = table.machine("g5.xlarge", "us-east-1")


def test_without_a_market_the_price_equals_the_price_in_the_table() -> None:
    assert prices.spot_price(POOL, "", 5 * HOUR_SECONDS) == LISTED.spot


def test_a_machine_that_is_not_in_the_table_and_an_on_demand_machine_have_no_spot_price() -> None:
    assert prices.spot_price(pool(region="nowhere"), "s", 0) is None
    assert prices.spot_price(pool(region="us-east-1", capacity="on-demand"), "s", 0) is None


@given(seed=text(min_size=1, max_size=8), seconds=floats(0, 1e7))
def test_a_price_stays_near_the_price_in_the_table_and_is_the_same_for_a_seed(
    seed: str, seconds: float
) -> None:
    price = prices.spot_price(POOL, seed, seconds)

    assert LISTED.spot is not None
    assert price is not None
    assert price == prices.spot_price(POOL, seed, seconds)
    assert abs(price / LISTED.spot - 1) <= prices.SWING + 1e-4, "prices have six decimal places"


def test_a_spot_price_never_exceeds_the_on_demand_price(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = table.MachinePrice(on_demand=0.5, spot=0.5)
    monkeypatch.setattr(table, "machine", lambda *_: listed)

    hourly_prices = [prices.spot_price(POOL, "s", hour * HOUR_SECONDS) or 0 for hour in range(48)]

    assert min(hourly_prices) < max(hourly_prices) == 0.5


def test_prices_change_each_hour_and_differ_between_zones() -> None:
    distinct_prices = {prices.spot_price(POOL, "s", hour * HOUR_SECONDS) for hour in range(24)}

    assert len(distinct_prices) == 24
    assert prices.spot_price(POOL, "s", 0) == prices.spot_price(POOL, "s", HOUR_SECONDS - 1)
    other_zone = pool("other", zone="us-east-1b", region="us-east-1")
    assert prices.spot_price(other_zone, "s", 0) != prices.spot_price(POOL, "s", 0)
    same_zone = pool("other", zone="us-east-1a", region="us-east-1")
    assert prices.spot_price(same_zone, "s", 0) == prices.spot_price(POOL, "s", 0)


def test_upcoming_prices_change_at_full_hours_of_the_market() -> None:
    market = MarketConfig(time_factor=60, seed="s", opened_at=1000.0)

    upcoming = list(market.upcoming_prices(POOL, 1030.0, 2))

    assert [change.at_seconds for change in upcoming] == pytest.approx([30, 90])
    assert upcoming[0].price == market.price(POOL, 1060.0)
    assert list(MarketConfig().upcoming_prices(POOL, 1030.0, 2)) == []


def test_only_a_known_price_above_the_maximum_is_too_high() -> None:
    capped = pool(max_price=0.5)

    assert [prices.exceeds_max_price(capped, price) for price in (0.4, 0.5, 0.6, None)] == [
        False,
        False,
        True,
        False,
    ]
    assert not prices.exceeds_max_price(pool(), 9.0)
