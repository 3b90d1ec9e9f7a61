"""The node pools of an AKS cluster: an inline system pool, GPU spot pools, perhaps a fallback.

Each GPU pool is a resource of its own: an edit of an inline pool sends all pools of the cluster into
an update, and taking one out does not delete it. The system pool must be inline, because a cluster
has at least one pool when it comes and when it goes.

A pool holds machines of one size. Several sizes are several pools, and the autoscaler's priorities
say which to try first.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import yaml
from pulumi_azure_native import containerservice

from components.cluster import Placement
from components.config import AksConfig, TolerationConfig
from components.config.aks import FALLBACK_POOL, SYSTEM_POOL
from components.part import Part

POOL_LABEL = "everstep/pool"
CAPACITY_LABEL = "everstep/capacity"
GPU_POOL = "gpu-spot"  # also of what is bought on demand: it is where workers run
ON_DEMAND = "on-demand"

# AKS puts both on the nodes of a spot pool by itself. Undeclared, each refresh would show a change
# (pulumi-azure-native #1808), and a later update would be refused (#959).
SPOT_KEY = "kubernetes.azure.com/scalesetpriority"
SPOT_TAINT = TolerationConfig(key=SPOT_KEY, value="spot", effect="NoSchedule")
GPU_TAINT = TolerationConfig(key="everstep/spot", value="true", effect="NoSchedule")
SYSTEM_TAINT = TolerationConfig(key="CriticalAddonsOnly", value="true", effect="NoSchedule")

SYSTEM_PLACEMENT = Placement(selector={POOL_LABEL: SYSTEM_POOL}, tolerations=[SYSTEM_TAINT])
# Both, whichever pools there are: adding a fallback must not change, and so replace, a running job.
GPU_PLACEMENT = Placement(selector={POOL_LABEL: GPU_POOL}, tolerations=[SPOT_TAINT, GPU_TAINT])

OS_SKU = "Ubuntu"  # what AKS installs NVIDIA's driver on for every size that it has


@dataclass(frozen=True, kw_only=True)
class GpuPool:
    """One pool of GPU nodes, decided.

    Attributes:
        name: also the middle of its nodes' names: `aks-<name>-...`.
        vm_size: of all its machines.
        spot: whether it is bought on the spot market.
        count: machines to start with; the autoscaler's afterwards.
        least: fewest machines.
        most: most machines.
    """

    name: str
    vm_size: str
    spot: bool
    count: int
    least: int
    most: int

    @property
    def taint(self) -> TolerationConfig:
        """The taint that keeps all but the workers away."""
        return SPOT_TAINT if self.spot else GPU_TAINT

    @property
    def labels(self) -> dict[str, str]:
        """The labels by which workers find it, and by which a reader knows how it is paid for."""
        return {POOL_LABEL: GPU_POOL} | (
            {SPOT_KEY: "spot"} if self.spot else {CAPACITY_LABEL: ON_DEMAND}
        )


def gpu_pools(config: AksConfig) -> list[GpuPool]:
    """Decide which GPU pools there are, in order of preference: the fallback comes last."""
    said = config.gpu_pool
    spot = said.capacity == "spot"
    pools = [
        GpuPool(
            name=name,
            vm_size=size,
            spot=spot,
            # The job starts on the first pool alone; on the others only where that has no room.
            count=max(said.min_nodes, said.nodes if index == 0 else 0),
            least=said.min_nodes,
            most=said.max_nodes,
        )
        for index, (name, size) in enumerate(said.vm_sizes.items())
    ]
    if spot and said.fallback_nodes:
        pools.append(
            GpuPool(
                name=FALLBACK_POOL,
                vm_size=next(iter(said.vm_sizes.values())),
                spot=False,
                count=0,
                least=0,
                most=said.fallback_nodes,
            )
        )
    return pools


def priorities(pools: list[GpuPool]) -> str:
    """Give the autoscaler's `priority` expander its table: the highest number is tried first.

    It matches scale sets' names, `aks-<pool>-<digits>-vmss`.
    """
    table = {
        10 * rank: [f"^aks-{pool.name}-"] for rank, pool in enumerate(reversed(pools), start=1)
    }
    return yaml.safe_dump(table, sort_keys=True)


def taint_text(taint: TolerationConfig) -> str:
    """Write a taint as AKS takes it."""
    return f"{taint.key}={taint.value}:{taint.effect}"


def system_pool(
    config: AksConfig, subnet_id: pulumi.Input[str], tags: Mapping[str, str]
) -> containerservice.ManagedClusterAgentPoolProfileArgs:
    """Give the pool that stays, on demand: etcd, the controller, data preparation, add-ons."""
    said = config.system_pool
    scales = system_scales(config)
    return containerservice.ManagedClusterAgentPoolProfileArgs(
        name=SYSTEM_POOL,
        mode="System",
        type="VirtualMachineScaleSets",
        vm_size=said.vm_size,
        os_type="Linux",
        os_sku=OS_SKU,
        os_disk_size_gb=said.disk_gib,
        count=said.nodes,
        enable_auto_scaling=scales,
        min_count=said.nodes if scales else None,
        max_count=said.max_nodes if scales else None,
        availability_zones=list(said.zones) or None,
        vnet_subnet_id=subnet_id,
        enable_node_public_ip=False,
        node_labels={POOL_LABEL: SYSTEM_POOL},
        node_taints=[taint_text(SYSTEM_TAINT)],
        orchestrator_version=config.kubernetes_version,
        upgrade_settings=containerservice.AgentPoolUpgradeSettingsArgs(max_surge="1"),
        tags=tags,
    )


def system_scales(config: AksConfig) -> bool:
    """Say whether the autoscaler may add system nodes."""
    return config.autoscaling.enabled and config.system_pool.max_nodes > config.system_pool.nodes


def moves_version(config: AksConfig) -> bool:
    """Say whether AKS moves to newer minor versions by itself, so that ours is only the first.

    Held to, the next `up` would try to go back, which Kubernetes cannot.
    """
    return config.upgrades.channel in {"stable", "rapid"}


@dataclass(frozen=True, kw_only=True)
class AksGpuPoolsArgs:
    """What to add to which cluster.

    Attributes:
        config: the stack's `cluster` section.
        group: name of the resource group.
        cluster: name of the cluster.
        subnet_id: where the nodes are.
        tags: of the pools, and by AKS of their machines.
    """

    config: AksConfig
    group: pulumi.Output[str]
    cluster: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    tags: dict[str, str]


class AksGpuPools(Part):
    """The GPU pools of a cluster.

    Attributes:
        pools: what was declared, in order of preference.
    """

    pools: tuple[containerservice.AgentPool, ...]

    def __init__(
        self, name: str, args: AksGpuPoolsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:AksGpuPools", name, opts)
        self._args = args
        self.pools = tuple(self._pool(pool) for pool in gpu_pools(args.config))
        self.register_outputs({"names": [pool.name for pool in self.pools]})

    def _pool(self, pool: GpuPool) -> containerservice.AgentPool:
        """Declare one pool."""
        said = self._args.config
        scales = said.autoscaling.enabled
        return containerservice.AgentPool(
            f"{self.name}-{pool.name}",
            agent_pool_name=pool.name,
            resource_group_name=self._args.group,
            resource_name_=self._args.cluster,
            mode="User",
            type="VirtualMachineScaleSets",  # said, or AKS answers with an error about surge
            vm_size=pool.vm_size,
            os_type="Linux",
            os_sku=OS_SKU,
            os_disk_size_gb=said.gpu_pool.disk_gib,
            gpu_profile=containerservice.GPUProfileArgs(driver=said.gpu_pool.driver),
            count=pool.count,
            enable_auto_scaling=scales,
            min_count=pool.least if scales else None,
            max_count=pool.most if scales else None,
            scale_down_mode="Delete",
            availability_zones=list(said.gpu_pool.zones) or None,
            vnet_subnet_id=self._args.subnet_id,
            enable_node_public_ip=False,
            node_labels=pool.labels,
            node_taints=[taint_text(pool.taint)],
            orchestrator_version=said.kubernetes_version,
            tags=self._args.tags,
            scale_set_priority="Spot" if pool.spot else "Regular",
            # Deallocated machines would go on holding quota, and keep the autoscaler from others.
            scale_set_eviction_policy="Delete" if pool.spot else None,
            spot_max_price=said.gpu_pool.max_price if pool.spot else None,
            upgrade_settings=_upgrades(pool),
            opts=self.child(
                delete_before_replace=True,
                ignore_changes=[
                    *(["count"] if scales else []),
                    *(["orchestratorVersion"] if moves_version(said) else []),
                ],
            ),
        )


def _upgrades(pool: GpuPool) -> containerservice.AgentPoolUpgradeSettingsArgs | None:
    """Say how a pool's nodes are renewed.

    AKS refuses every setting on a spot pool. On demand, a surge would ask for quota of GPUs that
    nobody has to spare: one node at a time makes room instead.
    """
    if pool.spot:
        return None
    return containerservice.AgentPoolUpgradeSettingsArgs(max_surge="0", max_unavailable="1")
