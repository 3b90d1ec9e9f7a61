"""Inputs of `everstep plan` from a stack: machines, zones and prices."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from everstep.capacity.history import HOUR_SECONDS
from everstep.capacity.job import JobModel, Prices
from everstep.errors import EverstepError

if TYPE_CHECKING:
    from components.config import StackConfig
    from components.cost import PoolPrice

DEFAULT_HOURS = 12.0
"""Work of a job by default, in hours of all its machines."""

MAX_WORK_HOURS = 10_000_000
MAX_ZONES = 3
"""Zones of the published traces that histories are fitted to."""


@dataclass(frozen=True)
class PlannedZone:
    """A zone in which the group may be.

    Attributes:
        name: its name.
        machines: maximum number of machines that the stack buys there, without fallbacks.
        price: USD per hour of one machine of its most expensive pool.
    """

    name: str
    machines: int
    price: float


def desired_machines(config: "StackConfig") -> int:
    """Return the number of machines for the job's workers, one each."""
    job = config.job
    return job.max_replicas if job.scaling == "capacity" else job.replicas


def zones(config: "StackConfig") -> tuple[PlannedZone, ...]:
    """Return up to three zones of `cluster.gpuPools` in order of preference.

    A stack with one pool is planned for all zones of its cluster, which shows what more pools would gain.
    """
    from components import cost

    pools = [pool for pool in cost.pool_prices(config) if not pool.fallback]
    pool_zones = dict.fromkeys(zone for pool in pools for zone in pool.zones)
    if getattr(config.cluster, "gpu_pools", ()) and pool_zones:
        return tuple(_zone_of_pools(zone, pools) for zone in pool_zones)[:MAX_ZONES]
    cluster_zones = tuple(str(zone) for zone in getattr(config.cluster, "zones", ()))
    names = cluster_zones[:MAX_ZONES] or tuple(f"zone-{number + 1}" for number in range(MAX_ZONES))
    machines, price = sum(pool.maximum for pool in pools), _highest(pools)
    return tuple(PlannedZone(name, machines, price) for name in names)


def zone_with_prices(config: "StackConfig", zone: PlannedZone) -> PlannedZone:
    """Return a zone of a stack with the prices of a configuration of the same stack."""
    return next(candidate for candidate in zones(config) if candidate.name == zone.name)


def _zone_of_pools(zone: str, pools: "Sequence[PoolPrice]") -> PlannedZone:
    zone_pools = [pool for pool in pools if zone in pool.zones]
    return PlannedZone(zone, sum(pool.maximum for pool in zone_pools), _highest(zone_pools))


def _highest(pools: "Sequence[PoolPrice]") -> float:
    """Return the highest price of a machine in these pools: the cloud may choose any of them."""
    return max((_required_price(pool, pool.price) for pool in pools), default=0.0)


def prices_in(prices: Prices, zones: Sequence[PlannedZone], names: Sequence[str]) -> Prices:
    """Return the prices for the zones of histories; a zone with another name has the highest price."""
    price_by_zone = {zone.name: zone.price for zone in zones}
    return replace(
        prices, spot_by_zone=tuple(price_by_zone.get(name, prices.spot) for name in names)
    )


def machines_in(zones: Sequence[PlannedZone], names: Sequence[str], max_machines: int) -> list[int]:
    """Return the maximum number of machines in the zones of histories."""
    limits = {zone.name: zone.machines for zone in zones}
    return [min(limits.get(name, max_machines), max_machines) for name in names]


def foreign_zones(zones: Sequence[PlannedZone], names: Sequence[str]) -> tuple[str, ...]:
    """Return the zones of histories that are not zones of the stack."""
    configured = {zone.name for zone in zones}
    return tuple(name for name in names if name not in configured)


def job_model(config: "StackConfig", stack: str, work_hours: float | None) -> JobModel:
    """Return the job of a stack.

    Args:
        config: the stack's configuration.
        stack: the stack's name.
        work_hours: machine-hours of the whole job; None for the default.

    Raises:
        EverstepError: the work is out of range, the stack has no machines of its own, or a price is unknown.
    """
    machines = desired_machines(config)
    hours = DEFAULT_HOURS * machines if work_hours is None else work_hours
    if not 0 < hours < MAX_WORK_HOURS:
        raise EverstepError(
            f"--work {hours:g} is outside of the range that can be planned",
            f"Use the machine-hours of the whole job: more than 0, less than {MAX_WORK_HOURS:,}.",
        )
    return JobModel(
        work=hours * HOUR_SECONDS,
        machines=machines,
        min_machines=min(config.job.min_replicas, machines),
        prices=prices(config, stack),
    )


def prices(config: "StackConfig", stack: str) -> Prices:
    """Return the prices of the stack's machines, the highest where the cloud may choose one of several types.

    Raises:
        EverstepError: the stack has no machines of its own, or a price is unknown.
    """
    from components import cost, spending

    pools = [pool for pool in cost.pool_prices(config) if not pool.fallback]
    if not pools:
        raise EverstepError(
            f"stack {stack} creates no GPU machines, so there is nothing to buy",
            "Plan a stack of a cloud: everstep plan --stack eks-dev",
        )
    others = spending.fixed_items(config)
    unpriced_items = [pool.disk_name for pool in pools if pool.disk is None]
    unpriced_items += [item.name for item in others if item.on_demand is None]
    return Prices(
        spot=_highest(pools),
        on_demand=max(_required_price(pool, pool.on_demand) for pool in pools),
        fixed=spending.fixed_usd_per_hour(config),
        unknown=tuple(dict.fromkeys(unpriced_items)),
    )


def _required_price(pool: "PoolPrice", price: float | None) -> float:
    if price is None:
        raise EverstepError(
            f"no price is known for {' or '.join(pool.machines)}",
            "Set everstep:cost.prices in the stack file: onDemand and spot of each machine type.",
        )
    return price
