"""Rules about the deadline, the budget and the on-demand policy of the job.

A deadline in the past is refused only when a stack is deployed or previewed (`deadline_faults`): a report
about a job that has ended must still be able to read its stack file.
"""

from collections.abc import Mapping
from datetime import datetime
from math import ceil

from cloudfacts.prices import storage as storage_price

from components.config import on_demand_nodes
from components.config.aks import AksConfig
from components.config.eks import MIN_THROUGHPUT, EksConfig, EksPool, FsxConfig
from components.config.faults import ConfigFault
from components.config.machine_prices import machine_price
from components.config.platform import PriceConfig
from components.config.rules import ConfigRule
from components.config.section import Section
from components.config.workload import JobConfig
from everstep.capacity import deadline as deadlines
from everstep.capacity.job import BOOT, LIVE
from everstep.catalog.plurals import amount

DEADLINE, BUDGET, ON_DEMAND = "job.deadline", "job.budgetUsd", "job.onDemand"

START_SECONDS = BOOT.seconds + LIVE.start_up.seconds
"""Time from the request of a machine until it trains, as `everstep plan` assumes."""


def deadline_faults(deadline: str | None, now: datetime) -> list[ConfigFault]:
    """Check that a deadline has not passed."""
    seconds_left = deadlines.seconds_left(deadline, now) if deadline else None
    if seconds_left is None or seconds_left > 0:
        return []
    return [
        ConfigFault(DEADLINE, deadline, "is in the past", "set a later time, or remove it"),
    ]


def controller_supports_limits(
    deadline: str | None, budget: float | None, on_demand: str | None, kind: str
) -> list[ConfigFault]:
    """Check that the controller supports limits, which the upstream controller ignores."""
    if kind == "maintained":
        return []
    rule = f"is not supported by controller.kind {kind}"
    fix = "use controller.kind maintained, or remove it"
    limits = {DEADLINE: deadline, BUDGET: budget, ON_DEMAND: on_demand}
    return [
        ConfigFault(path, value, rule, fix) for path, value in limits.items() if value is not None
    ]


def _deadline_has_policy(deadline: str | None, on_demand: str | None) -> list[ConfigFault]:
    """Check that a job with a deadline also configures whether it may buy on-demand machines to meet it."""
    if deadline is None or on_demand is not None:
        return []
    rule = "is missing, but job.deadline is set"
    fix = "set it to fallback (buys on-demand machines if needed), always, or never"
    return [ConfigFault(ON_DEMAND, None, rule, fix)]


def _deadline_after_start(deadline: str | None) -> list[ConfigFault]:
    """Check that a machine can train before a deadline that counts from the creation of the job.

    A deadline that is a point in time is not checked: a running job may be changed shortly before it.
    """
    seconds = deadlines.duration_seconds(deadline) if deadline else None
    if seconds is None or seconds > START_SECONDS:
        return []
    rule = f"expires before a machine can train, about {START_SECONDS:.0f} s after its request"
    minutes = int(START_SECONDS // 60) + 1
    fix = f"set {minutes}m or more; `everstep plan` gives the earliest deadline for the whole job"
    return [ConfigFault(DEADLINE, deadline, rule, fix)]


def _no_prices_on_existing(budget: float | None, on_demand: str | None) -> list[ConfigFault]:
    """Check that no limit needs prices or pools, which an existing cluster does not configure."""
    faults = []
    if budget is not None:
        rule = "applies only to machines that the stack creates, whose prices are known"
        faults.append(ConfigFault(BUDGET, budget, rule, "remove it"))
    if on_demand in ("fallback", "always"):
        rule = "applies only to pools that the stack creates"
        faults.append(ConfigFault(ON_DEMAND, on_demand, rule, "remove it, or use never"))
    return faults


def _on_demand_has_nodes(
    on_demand: str | None, job: JobConfig, cluster: EksConfig | AksConfig
) -> list[ConfigFault]:
    """Check that the pools allow enough on-demand nodes: for `min_replicas` with fallback, else for `replicas`.

    Workers that may not spread over zones need them in each zone.
    """
    if on_demand not in ("fallback", "always"):
        return []
    needed = job.min_replicas if on_demand == "fallback" else job.replicas
    available = on_demand_nodes.in_use(job, cluster)
    if available.nodes >= needed:
        return []
    in_zone = f" in {available.zone}" if available.zone else ""
    rule = (
        f"needs on-demand nodes for {amount(needed, 'worker')}, but the GPU pools allow {available.nodes}"
        f"{in_zone}"
    )
    has_spot = any(map(on_demand_nodes.is_spot, cluster.pools))
    key = "fallbackNodes" if has_spot else "maxNodes"
    return [ConfigFault(ON_DEMAND, on_demand, rule, f"raise {key} to {needed}, or use never")]


def _budget_pays_an_hour(
    budget: float | None,
    job: JobConfig,
    cluster: EksConfig | AksConfig,
    overrides: Mapping[str, PriceConfig],
    storage: Section,
) -> list[ConfigFault]:
    """Check that all prices are known, and that the budget pays for an hour of the group."""
    if budget is None:
        return []
    prices = _prices(cluster, overrides)
    unknown = {machine for machine, _, price in prices if price is None}
    unknown |= _unpriced_system_machine(cluster, overrides)
    if unknown:
        rule = f"cannot be enforced: no price is known for {' and '.join(sorted(unknown))}"
        return [ConfigFault(BUDGET, budget, rule, "set cost.prices, or remove it")]
    if _is_unpriced(storage):
        rule = (
            "cannot be enforced: no price is known for the file system with this storage.throughput"
        )
        fix = f"set storage.throughput to {MIN_THROUGHPUT}, or remove it"
        return [ConfigFault(BUDGET, budget, rule, fix)]
    on_demand = job.on_demand == "always"
    usable_prices = [
        price for _, is_on_demand, price in prices if price and is_on_demand is on_demand
    ]
    machines = job.desired_workers
    all_prices = [price for _, _, price in prices if price]
    hourly_usd = machines * min(usable_prices or all_prices, default=0.0)
    if budget >= hourly_usd:
        return []
    rule = f"is below the cost of one hour of {amount(machines, 'machine')}: at least {hourly_usd:.2f} USD"
    replicas = "maxReplicas" if job.scaling == "capacity" else "replicas"
    fix = f"raise it to {ceil(hourly_usd * 100) / 100:.2f} or more, or lower {replicas}"
    return [ConfigFault(BUDGET, budget, rule, fix)]


def _unpriced_system_machine(
    cluster: EksConfig | AksConfig, overrides: Mapping[str, PriceConfig]
) -> set[str]:
    """Return the machine type of the system pool if its price is not known."""
    if isinstance(cluster, EksConfig):
        machine, region = cluster.system_pool.instance_types[0], cluster.region
    else:
        machine, region = cluster.system_pool.vm_size, cluster.location
    return set() if machine_price(machine, region, overrides).on_demand is not None else {machine}


def _is_unpriced(storage: Section) -> bool:
    """Return True for a new file system whose price is not known."""
    if not isinstance(storage, FsxConfig) or storage.existing is not None:
        return False
    return storage_price(storage.tier, storage.size_gib) is None


def _prices(
    cluster: EksConfig | AksConfig, overrides: Mapping[str, PriceConfig]
) -> list[tuple[str, bool, float | None]]:
    """Return the machine types of the GPU pools, whether they are bought on demand, and their prices."""
    prices: list[tuple[str, bool, float | None]] = []
    for pool in cluster.pools:
        is_eks = isinstance(pool, EksPool)
        region = cluster.region if isinstance(cluster, EksConfig) else cluster.location
        spot = on_demand_nodes.is_spot(pool)
        fallback = is_eks and spot and on_demand_nodes.allowed(pool) > 0
        for machine in on_demand_nodes.machines(pool):
            price = machine_price(machine, region, overrides)
            prices.append((machine, not spot, price.spot if spot else price.on_demand))
            prices += [(machine, True, price.on_demand)] if fallback else []
    return prices


def _cache_has_price(budget: float | None, cache_class: str | None) -> list[ConfigFault]:
    """Check that the cache of the workers is not on volumes whose price is not known."""
    if budget is None or cache_class is None:
        return []
    rule = "cannot be enforced: no price is known for the volumes of data.cache.storageClass"
    fix = "remove data.cache.storageClass, which puts the cache on the nodes' disks, or remove the budget"
    return [ConfigFault(BUDGET, budget, rule, fix)]


_CLOUDS = {"cluster": ("eks", "aks")}

RULES = (
    ConfigRule((DEADLINE, BUDGET, ON_DEMAND, "controller.kind"), controller_supports_limits),
    ConfigRule((DEADLINE, ON_DEMAND), _deadline_has_policy),
    ConfigRule((DEADLINE,), _deadline_after_start, _CLOUDS),
    ConfigRule((BUDGET, ON_DEMAND), _no_prices_on_existing, {"cluster": ("existing",)}),
    ConfigRule((ON_DEMAND, "job", "cluster"), _on_demand_has_nodes, _CLOUDS),
    ConfigRule((BUDGET, "job", "cluster", "cost.prices", "storage"), _budget_pays_an_hour, _CLOUDS),
    ConfigRule((BUDGET, "data.cache.storageClass"), _cache_has_price, _CLOUDS),
)
