"""Inputs of `everstep plan` from a stack: machines, zones and prices."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from everstep.capacity.generator import PUBLISHED
from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import IDLE, Guaranteed, JobModel, Prices
from everstep.catalog.units import HOUR_SECONDS
from everstep.errors import EverstepError
from everstep.goodput import ChangeCost

if TYPE_CHECKING:
    from components.config import StackConfig
    from components.cost import GpuPoolPrice

DEFAULT_HOURS = 12.0
"""Work of a job by default, in hours of all its machines."""

MAX_WORK_HOURS = 10_000_000
SAMPLES = {"fashion-mnist": 60_000}
"""Training samples of the data sets whose size is known without reading them."""


@dataclass(frozen=True)
class PlannedZone:
    """A zone in which the group may run.

    Attributes:
        name: its name.
        machines: maximum number of spot machines that the stack buys there, without fallbacks and without pools whose
            price is above their ceiling.
        price: USD per hour of one spot machine of its most expensive pool.
        guaranteed: its on-demand and reserved machines.
        reserved: whether reserved machines are among them.
    """

    name: str
    machines: int
    price: float
    guaranteed: Guaranteed = field(default_factory=Guaranteed)
    reserved: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """How its machines are bought: reserved or on demand, and spot."""
        guaranteed = ("reserved" if self.reserved else "on demand",)
        return (
            *(guaranteed if self.guaranteed.machines else ()),
            *(("spot",) if self.machines else ()),
        )


def zones(config: "StackConfig", machine_type: str = "") -> tuple[PlannedZone, ...]:
    """Return the zones of the stack's pools in order of preference.

    A stack with one spot pool is planned for all zones of its cluster, which shows what more pools would gain.

    Args:
        config: the stack's configuration.
        machine_type: the only machine type; empty for all types of the pools.
    """
    pools = _pools(config, machine_type)
    all_pools = _pools(config)
    pool_zones = tuple(dict.fromkeys(zone for pool in all_pools for zone in pool.zones))
    several_pools = bool(getattr(config.cluster, "gpu_pools", ()))
    if pool_zones and (several_pools or any(pool.guaranteed for pool in all_pools)):
        return tuple(
            _planned_zone(zone, [pool for pool in pools if zone in pool.zones])
            for zone in pool_zones
        )
    names = tuple(map(str, getattr(config.cluster, "zones", ())))
    names = names or tuple(f"zone-{number + 1}" for number in range(len(PUBLISHED.zones)))
    count = 1 if any(pool.guaranteed for pool in all_pools) else len(names)
    return tuple(_planned_zone(name, pools) for name in names[:count])


def _pools(config: "StackConfig", machine_type: str = "") -> "list[GpuPoolPrice]":
    """Return the non-empty pools without fallbacks; with a machine type, the pools that have it, at its price."""
    from components import cost

    pools = cost.machine_prices(config) if machine_type else cost.pool_prices(config)
    return [
        pool
        for pool in pools
        if not pool.fallback
        and pool.maximum
        and (not machine_type or machine_type in pool.machines)
    ]


def machine_types(config: "StackConfig") -> tuple[str, ...]:
    """Return the machine types of the pools without fallbacks, in order of preference."""
    return tuple(dict.fromkeys(name for pool in _pools(config) for name in pool.machines))


def zone_with_prices(
    config: "StackConfig", zone: PlannedZone, machine_type: str = ""
) -> PlannedZone:
    """Return a zone of a stack with the prices of a configuration of the same stack."""
    priced_zones = zones(config, machine_type)
    return next(candidate for candidate in priced_zones if candidate.name == zone.name)


def _planned_zone(zone: str, pools: "Sequence[GpuPoolPrice]") -> PlannedZone:
    guaranteed = [pool for pool in pools if pool.guaranteed]
    spot = [pool for pool in pools if pool.spot and pool.admitted]
    return PlannedZone(
        zone,
        sum(pool.maximum for pool in spot),
        _highest(spot),
        Guaranteed(sum(pool.maximum for pool in guaranteed), _highest(guaranteed)),
        any(pool.reservation for pool in guaranteed),
    )


def _highest(pools: "Sequence[GpuPoolPrice]") -> float:
    """Return the highest price of a machine in these pools: the cloud may choose any of them."""
    return max((_required_price(pool, pool.marginal_price) for pool in pools), default=0.0)


def prices_in(prices: Prices, zones: Sequence[PlannedZone], names: Sequence[str]) -> Prices:
    """Return the prices for the zones of histories; a zone with another name has the highest price."""
    zone_by_name = {zone.name: zone for zone in zones}
    planned = [zone_by_name.get(name, PlannedZone(name, 0, prices.spot)) for name in names]
    return replace(
        prices,
        spot_by_zone=tuple(zone.price for zone in planned),
        guaranteed_by_zone=tuple(zone.guaranteed for zone in planned),
    )


def machines_in(
    history: CapacityHistory, zones: Sequence[PlannedZone], max_machines: int
) -> CapacityHistory:
    """Return a history of spot machines, limited to the maximum of each zone, plus the zones' guaranteed machines.

    A zone that the stack does not have is limited only by `max_machines`.
    """
    zone_by_name = {zone.name: zone for zone in zones}
    planned = [
        zone_by_name.get(name, PlannedZone(name, max_machines, 0.0)) for name in history.zones
    ]
    limited = history.limited_by_zone([min(zone.machines, max_machines) for zone in planned])
    return limited.plus([zone.guaranteed.machines for zone in planned])


def kinds_in(zones: Sequence[PlannedZone], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return how the machines of the zones of histories are bought; a zone with another name has spot machines."""
    kinds = {zone.name: zone.kinds for zone in zones}
    return [kinds.get(name, ("spot",)) for name in names]


def foreign_zones(zones: Sequence[PlannedZone], names: Sequence[str]) -> tuple[str, ...]:
    """Return the zones of histories that are not zones of the stack."""
    configured = {zone.name for zone in zones}
    return tuple(name for name in names if name not in configured)


def unplanned_zones(zones: Sequence[PlannedZone], names: Sequence[str]) -> tuple[str, ...]:
    """Return the zones of the stack that the histories do not have."""
    return tuple(zone.name for zone in zones if zone.name not in names)


def ceiling_warnings(config: "StackConfig") -> tuple[str, ...]:
    """Return a warning for each pool whose price is above its ceiling."""
    from components import cost

    return tuple(cost.ceiling_notes(cost.pool_prices(config)))


@dataclass(frozen=True)
class Work:
    """Work of a job.

    Attributes:
        machine_hours: machine-hours of the whole job.
        origin: where the number comes from.
    """

    machine_hours: float
    origin: str


def work_of(
    config: "StackConfig",
    work_hours: float | None = None,
    images_per_second: float | None = None,
    samples: int | None = None,
) -> Work:
    """Return the work of a stack's job.

    Args:
        config: the stack's configuration.
        work_hours: machine-hours of the whole job; None if they are not known.
        images_per_second: measured rate of one machine; None if it is not known.
        samples: training samples of an epoch; None for the size of the data set, if that is known.

    Raises:
        EverstepError: the arguments are mutually exclusive, the number of samples or epochs is not known, or the rate
            is not positive or gives work that is out of range.
    """
    if work_hours is not None and images_per_second is not None:
        raise EverstepError(
            "--work and --images-per-second both set the work of the job", "Use one of them."
        )
    if work_hours is not None:
        return Work(work_hours, "--work")
    if images_per_second is not None:
        return _measured_work(config, images_per_second, samples)
    machines = config.job.desired_workers
    origin = (
        f"an assumption, not the job: {DEFAULT_HOURS:g} h of {machines} machines. Set --work, or --images-per-second "
        "with the measured rate of one machine"
    )
    return Work(DEFAULT_HOURS * machines, origin)


def _measured_work(config: "StackConfig", images_per_second: float, samples: int | None) -> Work:
    job = config.job
    if job.command is not None:
        raise EverstepError(
            f"--images-per-second needs the epochs of the job, and job.command {job.command[0]!r} is not Everstep's "
            "trainer",
            "Compute the machine-hours of the program, and use --work.",
        )
    count = SAMPLES.get(config.data.dataset) if samples is None else samples
    if count is None:
        raise EverstepError(
            f"the number of samples of data.dataset {config.data.dataset} is not known",
            "Add --samples with the training samples of one epoch, such as --samples 1281167 for ImageNet-1k.",
        )
    if not images_per_second > 0:
        raise EverstepError(
            f"--images-per-second {images_per_second:g} is not a rate",
            "Use the measured rate of one machine, more than 0.",
        )
    hours = job.epochs * count / images_per_second / HOUR_SECONDS
    if not 0 < hours < MAX_WORK_HOURS:
        raise EverstepError(
            f"--images-per-second {images_per_second:g} gives {hours:g} machine-hours, which is outside the range "
            "that can be planned",
            f"Use the measured rate of one machine, so that the work is less than {MAX_WORK_HOURS:,} machine-hours.",
        )
    return Work(
        hours,
        f"{job.epochs} epochs of {count:,} samples at {images_per_second:g} per second and machine",
    )


def job_model(
    config: "StackConfig", stack: str, work_hours: float | None, machine_type: str = ""
) -> JobModel:
    """Return the job of a stack.

    Args:
        config: the stack's configuration.
        stack: the stack's name.
        work_hours: machine-hours of the whole job; None for the default.
        machine_type: the only machine type; empty for all types of the pools.

    Raises:
        EverstepError: the work is out of range, the stack has no machines of its own, or a price is unknown.
    """
    machines = config.job.desired_workers
    hours = work_of(config, work_hours).machine_hours
    if not 0 < hours < MAX_WORK_HOURS:
        raise EverstepError(
            f"--work {hours:g} is outside the range that can be planned",
            f"Use the machine-hours of the whole job: more than 0, less than {MAX_WORK_HOURS:,}.",
        )
    return JobModel(
        work=hours * HOUR_SECONDS,
        machines=machines,
        min_machines=min(config.job.min_replicas, machines),
        prices=prices(config, stack, machine_type),
        idle=_idle_time(config),
        max_on_demand=_max_on_demand(config, machine_type),
    )


def _max_on_demand(config: "StackConfig", machine_type: str) -> int | None:
    from components import spending

    return spending.max_on_demand(config, machine_type)


def _idle_time(config: "StackConfig") -> ChangeCost:
    """Return the time for which the stack's autoscaler keeps a machine without workers."""
    cluster = config.cluster
    if cluster.kind not in ("eks", "aks"):
        return IDLE
    minutes = cluster.autoscaling.scale_down_minutes
    return ChangeCost(60.0 * minutes, "cluster.autoscaling.scaleDownMinutes")


def prices(config: "StackConfig", stack: str, machine_type: str = "") -> Prices:
    """Return the prices of the stack's machines, the highest where the cloud may choose one of several types.

    Raises:
        EverstepError: the stack has no machines of its own, or a price is unknown.
    """
    from components import cost, spending

    pools = _pools(config, machine_type)
    spot_pools = [pool for pool in pools if pool.spot]
    if not pools:
        raise EverstepError(
            f"stack {stack} creates no GPU machines, so there is nothing to buy",
            "Plan a cloud stack: everstep plan --stack eks-dev",
        )
    others = cost.estimate(config).fixed_items
    unpriced_items = [pool.disk_name for pool in pools if pool.disk is None]
    unpriced_items += [item.name for item in others if item.on_demand is None]
    return Prices(
        spot=_highest(spot_pools or pools),
        on_demand=max(_required_price(pool, pool.on_demand) for pool in pools),
        fixed=spending.fixed_usd_per_hour(config),
        unknown=tuple(dict.fromkeys(unpriced_items)),
    )


def _required_price(pool: "GpuPoolPrice", price: float | None) -> float:
    if price is None:
        raise EverstepError(
            f"no price is known for {' or '.join(pool.machines)}",
            "Set everstep:cost.prices in the stack file: onDemand and spot of each machine type.",
        )
    return price
