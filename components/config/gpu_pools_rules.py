"""Rules about several GPU pools (`cluster.gpuPools`): for both clouds, then for EKS and for AKS.

Workers of one job must be interchangeable, and by default all of them are in one zone. A fault of one
pool names that pool's key.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from cloudfacts import aws, azure

from components.config import catalog
from components.config.aks import FALLBACK_SUFFIX as AKS_FALLBACK_SUFFIX
from components.config.aks import AksGpuPoolConfig, AksNamedPoolConfig
from components.config.aks_rules import max_price_faults, pod_cidr_faults
from components.config.eks import FALLBACK_SUFFIX as EKS_FALLBACK_SUFFIX
from components.config.eks import EksGpuPoolConfig, EksNamedPoolConfig
from components.config.eks_rules import reservation_faults
from components.config.faults import ConfigFault, nearest_hint
from components.config.newer_names import lacks_zones, zones_in
from components.config.pool_rules import SEVERAL_POOLS as POOLS
from components.config.pool_rules import (
    count_faults,
    duplicate_faults,
    fallback_faults,
    grace_faults,
)
from components.config.rules import ConfigRule, Flag
from everstep.catalog.names import SYSTEM_POOL
from everstep.catalog.plurals import amount

MIN_MEMORY = "cluster.minGpuMemoryGib"
SPREAD_ZONES = "job.spreadZones"
MIB_PER_GIB = 1024


NamedPool: TypeAlias = EksNamedPoolConfig | AksNamedPoolConfig


def _key(index: int, name: str = "") -> str:
    """Return the key of a pool, or of one of its values."""
    return f"{POOLS}[{index}]" + (f".{name}" if name else "")


def _either_pool_or_pools(
    pool: EksGpuPoolConfig | AksGpuPoolConfig | None, pools: Sequence[NamedPool]
) -> list[ConfigFault]:
    """Check that `gpuPool` and `gpuPools` are not both set."""
    if pool is None or not pools:
        return []
    rule = "is set together with cluster.gpuPool"
    fix = "remove one of the two: gpuPools replaces gpuPool"
    return [ConfigFault(POOLS, ", ".join(named.name for named in pools), rule, fix)]


def _names_unique(pools: Sequence[NamedPool]) -> list[ConfigFault]:
    """Check that no two pools have the same name: the names of their resources come from it."""
    names = [pool.name for pool in pools]
    return [
        ConfigFault(
            _key(index, "name"),
            name,
            f"is also the name of {_key(names.index(name))}",
            "choose another name",
        )
        for index, name in enumerate(names)
        if name in names[:index]
    ]


def _counts_valid(pools: Sequence[NamedPool]) -> list[ConfigFault]:
    """Check the node counts of each pool."""
    return [
        fault
        for index, pool in enumerate(pools)
        for fault in count_faults(
            _key(index), minimum=pool.min_nodes, nodes=pool.nodes, maximum=pool.max_nodes
        )
    ]


def _fallback_requires_spot(pools: Sequence[NamedPool], autoscaling: Flag) -> list[ConfigFault]:
    """Check that fallback nodes belong to spot pools and that the autoscaler can add them."""
    return [
        fault
        for index, pool in enumerate(pools)
        for fault in fallback_faults(
            _key(index, "fallbackNodes"),
            pool.capacity,
            pool.fallback_nodes,
            autoscaling=autoscaling,
        )
    ]


def _grace_within_notice(kind: str, pools: Sequence[NamedPool], grace: int) -> list[ConfigFault]:
    """Check that the grace period fits the notice if any pool is on spot machines."""
    spot = any(pool.capacity == "spot" for pool in pools)
    return grace_faults(kind, "spot" if spot else "onDemand", grace) if pools else []


def _nodes_by_zone(pools: Sequence[NamedPool], *, autoscaling: bool) -> dict[str | None, int]:
    """Return the maximum number of nodes in each zone; without autoscaling, the initial number."""
    nodes: dict[str | None, int] = {}
    for pool in pools:
        pool_nodes = pool.max_nodes + pool.fallback_nodes if autoscaling else pool.nodes
        nodes[pool.zone] = nodes.get(pool.zone, 0) + pool_nodes
    return nodes


def _workers_have_nodes(
    replicas: int, min_replicas: int, pools: Sequence[NamedPool], spread: Flag, autoscaling: Flag
) -> list[ConfigFault]:
    """Check that the pools allow a node for every worker, in one zone unless workers are spread.

    With autoscaling and without spreading, each of several zones must have nodes for the minimum number of workers.
    """
    nodes = _nodes_by_zone(pools, autoscaling=autoscaling)
    if not pools:
        return []
    one_zone = len(nodes) > 1 and not spread
    available = max(nodes.values()) if one_zone else sum(nodes.values())
    location = "in one zone" if one_zone else "in all zones"
    if replicas > available:
        rule = f"is more than the {amount(available, 'node')} that gpuPools allow {location}"
        fix = f"lower replicas to {available} or allow more nodes"
        if one_zone and sum(nodes.values()) >= replicas:
            fix += f", or set {SPREAD_ZONES} to true"
        return [ConfigFault("job.replicas", replicas, rule, fix)]
    if not one_zone:
        return []
    return [
        ConfigFault(
            "job.minReplicas",
            min_replicas,
            f"is more than the {amount(count, 'node')} that gpuPools allow in zone {zone}, so workers in "
            "that zone would wait forever",
            f"lower it to {count}, allow more nodes there, or remove that zone's pools",
        )
        for zone, count in nodes.items()
        if autoscaling and count < min_replicas
    ]


def _spread_applies(spread: Flag, pools: Sequence[NamedPool]) -> list[ConfigFault]:
    """Check that job.spreadZones is set only if there are several zones."""
    if not spread or len({pool.zone for pool in pools}) > 1:
        return []
    rule = "applies only to cluster.gpuPools in several zones"
    return [ConfigFault(SPREAD_ZONES, "true", rule, "remove it")]


def _spread_without_pools(spread: Flag) -> list[ConfigFault]:
    """Check that job.spreadZones is not set on an existing cluster, whose zones are not configured."""
    return _spread_applies(spread, ())


def _same_gpus(gpu_counts: Mapping[str, int], per_worker: int) -> list[ConfigFault]:
    """Check that every machine type has the same number of GPUs, and that a worker fits.

    Args:
        gpu_counts: `KEY=MACHINE_TYPE` -> number of GPUs of the machine type at this key.
        per_worker: GPUs that one worker requests.
    """
    if not gpu_counts:
        return []
    expected = next(iter(gpu_counts.values()))
    for location, count in gpu_counts.items():
        key, _, machine = location.partition("=")
        if count != expected:
            rule = f"has {amount(count, 'GPU')}, but the first type of the pools has {expected}"
            fix = f"use types with {expected}: workers of one job are interchangeable"
            return [ConfigFault(key, machine, rule, fix)]
    if per_worker > expected:
        rule = f"is more than a node of gpuPools has ({expected})"
        fix = f"lower it to {expected} or choose larger machine types"
        return [ConfigFault("job.gpusPerWorker", per_worker, rule, fix)]
    return []


def _memory_sufficient(mebibytes: Mapping[str, int], minimum: float | None) -> list[ConfigFault]:
    """Check that GPUs have the minimum memory, which is required if the machine types differ.

    Args:
        mebibytes: `KEY=MACHINE_TYPE` -> memory of a GPU of the machine type at this key, in MiB.
        minimum: value of minGpuMemoryGib, in GiB.
    """
    # Rounded down to tenths, as in the message, so that a number from the message is valid.
    memory = {location: mib * 10 // MIB_PER_GIB / 10 for location, mib in mebibytes.items()}
    if minimum is None:
        return _memory_unequal(memory)
    return [
        ConfigFault(
            location.partition("=")[0],
            location.partition("=")[2],
            f"has GPUs with {gib:g} GiB of memory, but {MIN_MEMORY} is {minimum:g}",
            f"choose larger GPUs, or lower {MIN_MEMORY} to {gib:g}",
        )
        for location, gib in memory.items()
        if gib < minimum
    ]


def _memory_unequal(memory: Mapping[str, float]) -> list[ConfigFault]:
    """Check that all GPUs have the same memory: workers of one job are interchangeable.

    Args:
        memory: `KEY=MACHINE_TYPE` -> memory of a GPU of the machine type at this key, in GiB.
    """
    if len(set(memory.values())) < 2:
        return []
    by_type = {location.partition("=")[2]: gib for location, gib in memory.items()}
    descriptions = ", ".join(f"{machine} {gib:g}" for machine, gib in by_type.items())
    rule = f"is missing, but the GPUs of the pools differ in memory (GiB: {descriptions})"
    fix = f"set it to what a worker needs, at most {min(memory.values()):g}, or use equal GPUs"
    return [ConfigFault(MIN_MEMORY, None, rule, fix)]


def _min_memory_applies(minimum: float | None, pools: Sequence[NamedPool]) -> list[ConfigFault]:
    """Check that minGpuMemoryGib is set only together with gpuPools."""
    if minimum is None or pools:
        return []
    return [ConfigFault(MIN_MEMORY, minimum, f"applies only to {POOLS}", "remove it")]


# --- EKS


def _eks_gpus(pools: Sequence[EksNamedPoolConfig], per_worker: int) -> list[ConfigFault]:
    """Check that all instance types of all pools have the same number of GPUs."""
    return _same_gpus(
        {
            f"{_key(index, f'instanceTypes[{position}]')}={name}": aws.INSTANCE_TYPES[name].gpus
            for index, pool in enumerate(pools)
            for position, name in enumerate(pool.instance_types)
        },
        per_worker,
    )


def _eks_types_unique(pools: Sequence[EksNamedPoolConfig]) -> list[ConfigFault]:
    """Check that no pool lists an instance type twice."""
    return [
        fault
        for index, pool in enumerate(pools)
        for fault in duplicate_faults(_key(index, "instanceTypes"), pool.instance_types)
    ]


def _reservations_valid(pools: Sequence[EksNamedPoolConfig]) -> list[ConfigFault]:
    """Check the reservation of each pool."""
    return [
        fault
        for index, pool in enumerate(pools)
        for fault in reservation_faults(
            _key(index), pool.reservation, pool.capacity, pool.instance_types
        )
    ]


def _eks_memory(pools: Sequence[EksNamedPoolConfig], minimum: float | None) -> list[ConfigFault]:
    """Check the memory of the GPUs of each instance type."""
    mebibytes = {
        f"{_key(index, f'instanceTypes[{position}]')}={name}": aws.INSTANCE_TYPES[
            name
        ].gpu_memory_mib
        for index, pool in enumerate(pools)
        for position, name in enumerate(pool.instance_types)
    }
    return _memory_sufficient(mebibytes, minimum)


def _eks_zones(region: str, pools: Sequence[EksNamedPoolConfig]) -> list[ConfigFault]:
    """Check that each pool is in a zone of the region."""
    region_zones = zones_in(region)
    return [
        ConfigFault(
            _key(index, "zone"),
            pool.zone,
            f"is not a zone of {region}",
            nearest_hint(pool.zone, region_zones),
        )
        for index, pool in enumerate(pools)
        if pool.zone not in region_zones
    ]


def _eks_names_free(pools: Sequence[EksNamedPoolConfig]) -> list[ConfigFault]:
    """Check that no pool's name ends like the name of a fallback node group."""
    return [
        ConfigFault(
            _key(index, "name"),
            pool.name,
            f"ends with {EKS_FALLBACK_SUFFIX}, as the node groups of fallbackNodes do",
            "choose another name",
        )
        for index, pool in enumerate(pools)
        if pool.name.endswith(EKS_FALLBACK_SUFFIX)
    ]


def _efa_uniform(pools: Sequence[EksNamedPoolConfig], spread: Flag) -> list[ConfigFault]:
    """Check that all pools or none have EFA, on one instance type, and that workers stay in one zone."""
    path, with_efa = _key(0, "efa"), [pool for pool in pools if pool.efa]
    if not with_efa:
        return []
    if len(with_efa) < len(pools):
        index = next(index for index, pool in enumerate(pools) if not pool.efa)
        rule = "is false, but another pool has EFA, which every worker then requests"
        return [ConfigFault(_key(index, "efa"), "false", rule, "enable it in all pools or in none")]
    if spread:
        rule = f"is enabled together with {SPREAD_ZONES}, but EFA does not connect zones"
        return [ConfigFault(path, "true", rule, f"remove {SPREAD_ZONES}, or set efa to false")]
    types = {name for pool in pools for name in pool.instance_types}
    if len(types) > 1:
        rule = "needs one instance type in all pools: a worker requests all adapters of its node"
        fix = f"keep one with EFA, such as {catalog.AWS_EFA_TYPES[0]}"
        return [ConfigFault(path, "true", rule, fix)]
    name = types.pop()
    if name not in catalog.AWS_EFA_TYPES:
        fix = f"use one with EFA, such as {catalog.AWS_EFA_TYPES[0]}, or efa: false"
        return [ConfigFault(path, "true", f"is enabled, but {name} does not support EFA", fix)]
    return []


def _file_system_reachable(
    zone: str | None, pools: Sequence[EksNamedPoolConfig]
) -> list[ConfigFault]:
    """Check that a pool is in the zone of an existing file system: reads from other zones cost money."""
    zones = list(dict.fromkeys(pool.zone for pool in pools))
    if zone is None or not zones or zone in zones:
        return []
    rule = f"has no GPU pool (zones with one: {', '.join(zones)}): all reads would cross zones"
    return [ConfigFault("storage.existing.zone", zone, rule, f"add a pool in {zone}")]


# --- AKS


def _aks_names_free(pools: Sequence[AksNamedPoolConfig]) -> list[ConfigFault]:
    """Check that no pool has the name of the system pool or of another pool's fallback."""
    fallbacks = {
        f"{pool.name}{AKS_FALLBACK_SUFFIX}": pool.name for pool in pools if pool.fallback_nodes
    }
    existing = {name: f"the fallback of {pool}" for name, pool in fallbacks.items()}
    existing[SYSTEM_POOL] = "the system pool"
    return [
        ConfigFault(
            _key(index, "name"), pool.name, f"has the name of {existing[pool.name]}", "rename it"
        )
        for index, pool in enumerate(pools)
        if pool.name in existing
    ]


def _aks_gpus(pools: Sequence[AksNamedPoolConfig], per_worker: int) -> list[ConfigFault]:
    """Check that all pools have the same number of GPUs, and the same fraction of a GPU."""
    sizes = [azure.VM_SIZES[pool.vm_size] for pool in pools]
    for index, size in enumerate(sizes):
        if size.gpu_share != sizes[0].gpu_share:
            rule = f"has {_share(size)}, but the first pool has {_share(sizes[0])}"
            fix = "use sizes with equal fractions"
            return [ConfigFault(_key(index, "vmSize"), size.name, rule, fix)]
    gpu_counts = {
        f"{_key(index, 'vmSize')}={size.name}": size.gpus for index, size in enumerate(sizes)
    }
    return _same_gpus(gpu_counts, per_worker)


def _share(size: azure.VmSize) -> str:
    """Return the fraction of a GPU that a machine has, as text."""
    parts = round(1 / size.gpu_share)
    return "whole GPUs" if parts == 1 else f"1/{parts} of a GPU"


def _aks_memory(pools: Sequence[AksNamedPoolConfig], minimum: float | None) -> list[ConfigFault]:
    """Check the memory of each pool's GPUs."""
    mebibytes = {
        f"{_key(index, 'vmSize')}={pool.vm_size}": azure.VM_SIZES[pool.vm_size].gpu_memory_mib
        for index, pool in enumerate(pools)
    }
    return _memory_sufficient(mebibytes, minimum)


def _aks_zones(location: str, pools: Sequence[AksNamedPoolConfig]) -> list[ConfigFault]:
    """Check that the location has zones, and that either all pools have a zone or none does."""
    zoned = [index for index, pool in enumerate(pools) if pool.zone is not None]
    if zoned and lacks_zones(location):
        rule = f"is set, but {location} has no availability zones"
        fix = "remove it, or choose another location"
        return [ConfigFault(_key(index, "zone"), pools[index].zone, rule, fix) for index in zoned]
    if not zoned or len(zoned) == len(pools):
        return []
    rule = "is missing, but other pools have one: workers could not be kept in one zone"
    return [
        ConfigFault(_key(index, "zone"), None, rule, "set it in all pools or in none")
        for index in range(len(pools))
        if index not in zoned
    ]


def _aks_pools_differ(pools: Sequence[AksNamedPoolConfig]) -> list[ConfigFault]:
    """Check that no two pools buy the same machines: they would share quota and spot market."""
    faults, pool_names = [], dict[tuple[str, str | None, str], str]()
    for index, pool in enumerate(pools):
        purchase = (pool.vm_size, pool.zone, pool.capacity)
        if purchase in pool_names:
            rule = f"is also used by {pool_names[purchase]}, in the same zone and capacity type"
            fix = "remove one, or choose another size or zone"
            faults.append(ConfigFault(_key(index, "vmSize"), pool.vm_size, rule, fix))
        pool_names.setdefault(purchase, pool.name)
    return faults


def _max_prices_valid(pools: Sequence[AksNamedPoolConfig]) -> list[ConfigFault]:
    """Check the price ceiling of each pool."""
    return [
        fault
        for index, pool in enumerate(pools)
        for fault in max_price_faults(_key(index, "maxPrice"), pool.max_price, pool.capacity)
    ]


def _pod_cidr_fits(
    pod_cidr: str, system_nodes: int, pools: Sequence[AksNamedPoolConfig]
) -> list[ConfigFault]:
    """Check that podCidr has a /24 for the maximum number of nodes of all pools."""
    nodes = sum(pool.max_nodes + pool.fallback_nodes for pool in pools)
    return pod_cidr_faults(pod_cidr, system_nodes + nodes) if pools else []


_CLOUDS = {"cluster": ("eks", "aks")}
_EKS, _AKS = {"cluster": ("eks",)}, {"cluster": ("aks",)}
_AUTOSCALING = "cluster.autoscaling.enabled"

RULES = (
    ConfigRule(("cluster.gpuPool", POOLS), _either_pool_or_pools, _CLOUDS),
    ConfigRule((POOLS,), _names_unique, _CLOUDS),
    ConfigRule((POOLS,), _counts_valid, _CLOUDS),
    ConfigRule((POOLS, _AUTOSCALING), _fallback_requires_spot, _CLOUDS),
    ConfigRule(("cluster.kind", POOLS, "job.graceSeconds"), _grace_within_notice, _CLOUDS),
    ConfigRule(
        ("job.replicas", "job.minReplicas", POOLS, SPREAD_ZONES, _AUTOSCALING),
        _workers_have_nodes,
        _CLOUDS,
    ),
    ConfigRule((SPREAD_ZONES, POOLS), _spread_applies, _CLOUDS),
    ConfigRule((SPREAD_ZONES,), _spread_without_pools, {"cluster": ("existing",)}),
    ConfigRule((MIN_MEMORY, POOLS), _min_memory_applies, _CLOUDS),
    ConfigRule((POOLS, "job.gpusPerWorker"), _eks_gpus, _EKS),
    ConfigRule((POOLS,), _eks_types_unique, _EKS),
    ConfigRule((POOLS,), _reservations_valid, _EKS),
    ConfigRule((POOLS, MIN_MEMORY), _eks_memory, _EKS),
    ConfigRule(("cluster.region", POOLS), _eks_zones, _EKS),
    ConfigRule((POOLS,), _eks_names_free, _EKS),
    ConfigRule((POOLS, SPREAD_ZONES), _efa_uniform, _EKS),
    ConfigRule(
        ("storage.existing.zone", POOLS), _file_system_reachable, _EKS | {"storage": ("fsx",)}
    ),
    ConfigRule((POOLS,), _aks_names_free, _AKS),
    ConfigRule((POOLS, "job.gpusPerWorker"), _aks_gpus, _AKS),
    ConfigRule((POOLS, MIN_MEMORY), _aks_memory, _AKS),
    ConfigRule(("cluster.location", POOLS), _aks_zones, _AKS),
    ConfigRule((POOLS,), _aks_pools_differ, _AKS),
    ConfigRule((POOLS,), _max_prices_valid, _AKS),
    ConfigRule(
        ("cluster.network.podCidr", "cluster.systemPool.maxNodes", POOLS), _pod_cidr_fits, _AKS
    ),
)
