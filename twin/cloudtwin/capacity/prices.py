"""The price of a pool's spot machines over time. Pure.

In a market, the price moves around the price in the dated table of `cloudfacts`: a factor from 0.8 to 1.2 is drawn
every six hours, and the factor of each hour is interpolated between two of them. The price never exceeds the on-demand
price, as on both clouds. The range is an assumption, because the published traces have capacity and no prices. Without
a market the price is the table's.
"""

import random

from cloudfacts import prices

from cloudtwin.capacity.market import HOUR_SECONDS
from cloudtwin.capacity.pools import Pool

KNOT_HOURS = 6
SWING = 0.2
"""Largest deviation from the price of the table, as a share of it."""


def spot_price(pool: Pool, seed: str, seconds: float) -> float | None:
    """Return the price of a spot machine of a pool's first type in USD per hour.

    It is None for an on-demand pool, and if the table has no spot price.

    Args:
        pool: the pool.
        seed: seed of its market; empty without a market.
        seconds: time since the market's start.
    """
    listed = prices.machine(pool.instance_types[0], pool.region)
    if pool.capacity != "spot" or listed.spot is None:
        return None
    price = listed.spot * (
        _factor(f"{seed}/{pool.instance_types[0]}/{pool.zone}", seconds) if seed else 1
    )
    return round(min(price, listed.on_demand or price), 6)


def exceeds_max_price(pool: Pool, price: float | None) -> bool:
    """Return True if a price is known and above the maximum price of a pool."""
    return pool.max_price is not None and price is not None and price > pool.max_price


def _factor(seed: str, seconds: float) -> float:
    knot, hour = divmod(int(seconds // HOUR_SECONDS), KNOT_HOURS)
    before, after = (_knot(seed, knot + step) for step in (0, 1))
    return before + (after - before) * hour / KNOT_HOURS


def _knot(seed: str, number: int) -> float:
    return 1 + SWING * random.Random(f"{seed}/price/{number}").uniform(-1, 1)  # noqa: S311 - reproducible
