"""Checks of a location for a stack of kind aks: Kubernetes, VM sizes and quotas."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from everstep.cli.account.azure_account import AzureAccount
from everstep.cli.account.azure_names import group_of
from everstep.cli.account.checks import AccountCheck, fault, success

if TYPE_CHECKING:
    from components.config import AksConfig, AksPool

SPOT_QUOTA, REGIONAL_QUOTA = "lowprioritycores", "cores"
SUPPORT_PLAN = "KubernetesOfficial"


@dataclass(frozen=True)
class VmPool:
    """Machines of one pool.

    Attributes:
        name: name of the pool for the user.
        field: key of its VM size.
        size: its VM size.
        zones: zones in which its machines start; if empty, the cloud chooses.
        spot: whether they are spot machines.
        nodes: maximum number of machines.
        zones_field: key of its zones.
    """

    name: str
    field: str
    size: str
    zones: Sequence[str]
    spot: bool
    nodes: int
    zones_field: str


def check_kubernetes(account: AzureAccount, cluster: "AksConfig") -> Iterator[AccountCheck]:
    """Check that AKS offers the version of Kubernetes in the location."""
    subject, key, version = "Kubernetes", "cluster.kubernetesVersion", cluster.kubernetes_version
    versions = account.kubernetes_versions()
    usable = [
        name for name, (preview, plans) in versions.items() if SUPPORT_PLAN in plans and not preview
    ]
    fix = f"Use {' or '.join(sorted(usable)) or 'another location'}."
    if version not in versions:
        yield fault(subject, f"{cluster.location} does not offer {version}", key, fix)
        return
    preview, plans = versions[version]
    if SUPPORT_PLAN not in plans:
        yield fault(subject, f"{version} is offered with {', '.join(plans)} only", key, fix)
    elif preview:
        yield fault(subject, f"{version} is a preview in {cluster.location}", key, fix, fatal=False)
    else:
        yield success(subject, f"{version} in {cluster.location}", key)


def pools(cluster: "AksConfig") -> list[VmPool]:
    """Return the pools from which a stack may start machines."""
    system = cluster.system_pool
    all_pools = [
        *map(_gpu_pool, cluster.pools),
        VmPool("system pool", "cluster.systemPool.vmSize", system.vm_size, system.zones, spot=False,
                 nodes=system.max_nodes, zones_field="cluster.systemPool.zones"),
    ]  # fmt: skip
    return [pool for pool in all_pools if pool.nodes]


def _gpu_pool(pool: "AksPool") -> VmPool:
    """Return a GPU pool or a fallback."""
    name = (
        " ".join(filter(None, ["GPU fallback", pool.label]))
        if pool.fallback
        else f"GPU pool {pool.name}"
    )
    return VmPool(
        name,
        pool.key,
        pool.vm_size,
        pool.zones,
        spot=pool.spot,
        nodes=pool.max_nodes,
        zones_field=pool.zones_key,
    )


def check_offerings(account: AzureAccount, cluster: "AksConfig") -> Iterator[AccountCheck]:
    """Check that the subscription can use the VM size of each pool in each of its zones."""
    for pool in pools(cluster):
        fix = f"Use another size or location: az vm list-skus --location {cluster.location} --size {pool.size}"
        size = account.sizes.get(pool.size)
        if size is None:
            yield fault(
                pool.name,
                f"{pool.size} is not offered in {cluster.location}",
                pool.field,
                fix,
            )
        elif size.restriction:
            observed = f"{pool.size} is restricted in {cluster.location}: {size.restriction}"
            request = f'{fix}; or request access in a support request of the type "Quota"'
            yield fault(pool.name, observed, pool.field, request)
        elif pool.spot and not size.spot:
            yield fault(pool.name, f"{pool.size} has no spot machines", pool.field, fix)
        elif missing := [zone for zone in pool.zones if zone not in size.zones]:
            zones = ", ".join(sorted(size.zones)) or "none"
            observed = f"{pool.size} is not available in zone {', '.join(missing)}"
            yield fault(
                pool.name,
                observed,
                pool.zones_field,
                f"Use one of its zones: {zones}; or another size.",
            )
        else:
            yield success(pool.name, f"{pool.size} is available", pool.field)


def check_quotas(account: AzureAccount, cluster: "AksConfig", stack: str) -> Iterator[AccountCheck]:
    """Check that the quotas allow all machines of the pools.

    If the stack is up, its own machines use the quota, so only the limit is compared.
    """
    is_up = (account.cluster_tags(group_of(cluster, stack), cluster.name) or {}).get(
        "stack"
    ) == stack
    known_pools = [pool for pool in pools(cluster) if pool.size in account.sizes]
    account_quotas = account.quotas()
    families: dict[str, list[VmPool]] = {}
    for pool in known_pools:
        vm_size = account.sizes[pool.size]
        families.setdefault(SPOT_QUOTA if pool.spot else vm_size.family.lower(), []).append(pool)
    regular = [pool for pool in known_pools if not pool.spot]
    for name, limited_pools in {**families, REGIONAL_QUOTA: regular}.items():
        if name not in account_quotas or not limited_pools:
            continue
        quota = account_quotas[name]
        vcpus = [account.sizes[pool.size].vcpus for pool in limited_pools]
        required = sum(size * pool.nodes for size, pool in zip(vcpus, limited_pools, strict=True))
        free = quota.limit - (0 if is_up else quota.used)
        observed = f"{free} of {quota.limit} vCPUs free, {required} for all nodes: {quota.label}"
        fix = f"Request {required + quota.limit - free} for {cluster.location}: portal, Quotas, Compute, {quota.label}"
        pool_names = ", ".join(pool.name for pool in limited_pools)
        yield AccountCheck(
            f"quota, {pool_names}",
            free >= required,
            observed,
            limited_pools[0].field,
            fix,
            fatal=free < min(vcpus),
        )
