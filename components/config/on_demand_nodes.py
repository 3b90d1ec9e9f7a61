"""The on-demand GPU nodes that the pools of a stack allow: fallbacks of spot pools, and on-demand pools.

The rules of the configuration, the plan and the spec of the ElasticJob use this number.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from components.config.aks import AksConfig, AksPool
from components.config.eks import EksConfig, EksPool
from components.config.workload import JobConfig


@dataclass(frozen=True)
class OnDemandNodes:
    """On-demand nodes that the workers of a job can have at the same time.

    Attributes:
        nodes: their maximum number.
        zone: the zone that limits them; empty if the workers may be in several zones.
    """

    nodes: int
    zone: str = ""


def in_use(job: JobConfig, cluster: EksConfig | AksConfig, machine_type: str = "") -> OnDemandNodes:
    """Return the on-demand nodes of a job; workers that may not spread over zones need them in each zone.

    Args:
        job: the job, whose workers may spread over zones or not.
        cluster: the cluster with the pools.
        machine_type: the only machine type; empty for all types of the pools.
    """
    pools = [pool for pool in cluster.pools if not machine_type or machine_type in machines(pool)]
    if job.spread_zones or not cluster.gpu_pools:
        return OnDemandNodes(sum(map(allowed, pools)))  # a pool may be in several zones
    nodes = _by_zone(pools)
    zone = min(nodes, key=lambda name: nodes[name], default="")
    return OnDemandNodes(nodes.get(zone, 0), zone)


def _by_zone(pools: Sequence[EksPool | AksPool]) -> dict[str, int]:
    nodes: dict[str, int] = {}
    for pool in pools:
        for zone in (pool.zone,) if isinstance(pool, EksPool) else pool.zones or ("any zone",):
            nodes[zone] = nodes.get(zone, 0) + allowed(pool)
    return nodes


def allowed(pool: EksPool | AksPool) -> int:
    """Return the maximum number of on-demand nodes of a pool."""
    if isinstance(pool, AksPool):
        return 0 if pool.spot else pool.max_nodes
    return pool.settings.fallback_nodes if is_spot(pool) else pool.settings.max_nodes


def is_spot(pool: EksPool | AksPool) -> bool:
    """Return True if the nodes of a pool are spot machines."""
    return pool.spot if isinstance(pool, AksPool) else pool.settings.capacity == "spot"


def machines(pool: EksPool | AksPool) -> tuple[str, ...]:
    """Return the machine types of a pool."""
    return pool.settings.instance_types if isinstance(pool, EksPool) else (pool.vm_size,)
