"""The deadline, the budget and the prices of the job and its zones, in the format of its ElasticJob.

The controller has no price table: it multiplies machine time by these prices.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from components import cost
from components.config import AksConfig, EksConfig, StackConfig, on_demand_nodes
from everstep.capacity import deadline as deadlines

DIGITS = 6  # decimals of a price in USD


def fixed_usd_per_hour(config: StackConfig) -> float:
    """Return the price of everything that is billed whether GPU nodes run or not; an unknown price counts as 0.

    Reserved machines are included: AWS bills a Capacity Reservation for unused capacity as well.
    """
    others = sum(item.count * (item.on_demand or 0.0) for item in cost.estimate(config).fixed_items)
    return others + sum(pool.reserved_usd_per_hour for pool in cost.pool_prices(config))


def max_on_demand(config: StackConfig, machine_type: str = "") -> int | None:
    """Return the maximum number of on-demand machines that the job can have; None if the stack creates no pools.

    Args:
        config: the stack's configuration.
        machine_type: the only machine type; empty for all types of the pools.
    """
    cluster = config.cluster
    if not isinstance(cluster, EksConfig | AksConfig):
        return None
    return on_demand_nodes.in_use(config.job, cluster, machine_type).nodes


def job_spending(config: StackConfig) -> dict[str, Any] | None:
    """Return the value of `spending` in the spec of an ElasticJob; None for a job without limits."""
    job = config.job
    if job.deadline is None and job.budget_usd is None and job.on_demand is None:
        return None
    pools = list(_pools(config))
    fixed = round(fixed_usd_per_hour(config), DIGITS)
    spending = {
        **_deadline(job.deadline),
        "budgetUsd": job.budget_usd,
        "onDemand": job.on_demand,
        "maxOnDemand": max_on_demand(config) if job.on_demand in ("fallback", "always") else None,
        "fixedUsdPerHour": fixed or None,
        "pools": pools or None,
    }
    return {key: value for key, value in spending.items() if value is not None}


def zone_prices(config: StackConfig) -> dict[str, float]:
    """Return the price of a machine in the cheapest pool of each zone, by the zone label of the nodes.

    Pools that serve only while spot has no capacity do not count, and pools above their price ceiling count only in a
    zone that has no other. A reserved machine costs its disk only. A zone is absent if no price in it is known.
    """
    return {
        zone: round(pool.marginal_price, DIGITS)
        for zone, pools in _pools_by_zone(config).items()
        if (pool := _cheapest(pools)) and pool.marginal_price is not None
    }


def zone_ceilings(config: StackConfig) -> dict[str, float]:
    """Return the price ceiling of each zone's pool in `zone_prices`, for the zones whose pool has a ceiling.

    A zone that also has a pool of unknown price is absent: the price of that pool cannot be compared.
    """
    return {
        zone: round(pool.max_price, DIGITS)
        for zone, pools in _pools_by_zone(config).items()
        if (pool := _cheapest(pools))
        and pool.max_price is not None
        and all(other.price is not None for other in pools)
    }


def _pools_by_zone(config: StackConfig) -> dict[str, list[cost.GpuPoolPrice]]:
    """Return the pools of each zone without fallbacks, by the zone label of the nodes."""
    pools_by_zone: dict[str, list[cost.GpuPoolPrice]] = {}
    for pool in cost.pool_prices(config):
        for zone in () if pool.fallback else pool.zones:
            pools_by_zone.setdefault(_zone_label(config, zone), []).append(pool)
    return pools_by_zone


def _cheapest(pools: Sequence[cost.GpuPoolPrice]) -> cost.GpuPoolPrice | None:
    """Return the cheapest pool with a price, preferably a pool within its ceiling; None if no pool has a price."""
    return min(
        (pool for pool in pools if pool.price is not None),
        key=lambda pool: (not pool.admitted, pool.marginal_price or 0.0),
        default=None,
    )


def _zone_label(config: StackConfig, zone: str) -> str:
    return config.cluster.zone_label(zone) if isinstance(config.cluster, AksConfig) else zone


def _deadline(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    seconds = deadlines.duration_seconds(text)
    return {"deadline": text} if seconds is None else {"deadlineSeconds": round(seconds)}


def _pools(config: StackConfig) -> Iterator[dict[str, Any]]:
    """Yield the highest price of each combination of pool and capacity type."""
    prices: dict[tuple[str, bool], float] = {}
    for pool in cost.pool_prices(config):
        if pool.marginal_price is not None:
            key = (pool.label, not pool.spot)
            prices[key] = max(prices.get(key, 0.0), pool.marginal_price)
    for (label, on_demand), price in sorted(prices.items()):
        yield {
            **({"pool": label} if label else {}),
            "capacity": "onDemand" if on_demand else "spot",
            "usdPerHour": round(price, DIGITS),
        }
