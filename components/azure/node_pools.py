"""The node pools of an AKS cluster: an inline system pool, GPU pools and optional fallbacks.

Each GPU pool is a separate resource: a change of an inline pool updates all pools of the cluster,
and removing one does not delete it. The system pool must be inline, because a cluster has at least
one pool when it is created and when it is deleted.

A pool has machines of one size. Several sizes need several pools, which the autoscaler tries in the
order of its priorities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import yaml
from pulumi_azure_native import containerservice

from components.component import Component
from components.config import AksConfig, AksPool, TolerationConfig
from components.interface import Placement
from everstep.catalog.names import (
    AZURE_SPOT,
    AZURE_SPOT_LABEL,
    CAPACITY_LABEL,
    GPU_POOL,
    GPU_POOL_LABEL,
    ON_DEMAND,
    POOL_LABEL,
    SPOT_TAINT_KEY,
    SPOT_TAINT_VALUE,
    SYSTEM_POOL,
)

# AKS adds this label and taint to the nodes of a spot pool. If they were not declared, each refresh would
# show a change (pulumi-azure-native #1808), and AKS would refuse a later update (#959).
AKS_SPOT_TAINT = TolerationConfig(key=AZURE_SPOT_LABEL, value=AZURE_SPOT, effect="NoSchedule")
GPU_TAINT = TolerationConfig(key=SPOT_TAINT_KEY, value=SPOT_TAINT_VALUE, effect="NoSchedule")
SYSTEM_TAINT = TolerationConfig(key="CriticalAddonsOnly", value="true", effect="NoSchedule")

SYSTEM_PLACEMENT = Placement(selector={POOL_LABEL: SYSTEM_POOL}, tolerations=[SYSTEM_TAINT])
# Workers tolerate both taints even without a fallback pool, so that adding one does not replace the running job.
GPU_PLACEMENT = Placement(selector={POOL_LABEL: GPU_POOL}, tolerations=[AKS_SPOT_TAINT, GPU_TAINT])

OS_SKU = "Ubuntu"  # image on which AKS installs the NVIDIA driver for every GPU size
CREATE_TIMEOUT = "60m"

LOCAL_DNS = "Disabled"
"""Mode of LocalDNS, a cache of DNS on each node that AKS enables by default from Kubernetes 1.37 on.

Cilium applies the network policies to connections to that cache, so that pods, which may query only the DNS of the
cluster, could resolve no name after an upgrade. Source: AKS documentation, "DNS resolution in AKS" and "Configure
LocalDNS", 2026-11.
"""
# AKS allows no change of these properties, and the provider itself replaces a pool only for another `vmSize`. Sources:
# pulumi-azure-native, provider/pkg/gen/replacement.go; AKS #4374; AKS documentation, "Manage node pools", 2026-11.
FIXED_PROPERTIES = [
    "availabilityZones",
    "gpuProfile.driver",
    "osDiskSizeGB",
    "scaleSetEvictionPolicy",
    "scaleSetPriority",
    "spotMaxPrice",
]


def taint_of(pool: AksPool) -> TolerationConfig:
    """Return the taint of a pool of GPU nodes, which workers tolerate."""
    return AKS_SPOT_TAINT if pool.spot else GPU_TAINT


def labels_of(pool: AksPool) -> dict[str, str]:
    """Return the labels of a pool's nodes: those by which workers select nodes, and the capacity type."""
    return (
        {POOL_LABEL: GPU_POOL}
        | ({AZURE_SPOT_LABEL: AZURE_SPOT} if pool.spot else {CAPACITY_LABEL: ON_DEMAND})
        | ({GPU_POOL_LABEL: pool.label} if pool.label else {})
    )


def priorities(pools: Sequence[AksPool]) -> str:
    """Return the table of the autoscaler's `priority` expander: the highest number is tried first.

    Its patterns match the names of scale sets, `aks-<pool>-<digits>-vmss`.
    """
    table = {
        10 * rank: [f"^aks-{pool.name}-"] for rank, pool in enumerate(reversed(pools), start=1)
    }
    return yaml.safe_dump(table, sort_keys=True)


def taint_text(taint: TolerationConfig) -> str:
    """Return a taint in the format of AKS."""
    return f"{taint.key}={taint.value}:{taint.effect}"


def system_pool(
    config: AksConfig, subnet_id: pulumi.Input[str], tags: Mapping[str, str]
) -> containerservice.ManagedClusterAgentPoolProfileArgs:
    """Return the on-demand pool for etcd, the controller, data preparation and add-ons."""
    pool = config.system_pool
    autoscaled = system_pool_scales(config)
    return containerservice.ManagedClusterAgentPoolProfileArgs(
        name=SYSTEM_POOL,
        mode="System",
        type="VirtualMachineScaleSets",
        vm_size=pool.vm_size,
        os_type="Linux",
        os_sku=OS_SKU,
        os_disk_size_gb=pool.disk_gib,
        count=pool.nodes,
        enable_auto_scaling=autoscaled,
        min_count=pool.nodes if autoscaled else None,
        max_count=pool.max_nodes if autoscaled else None,
        availability_zones=list(pool.zones) or None,
        vnet_subnet_id=subnet_id,
        enable_node_public_ip=False,
        node_labels={POOL_LABEL: SYSTEM_POOL},
        node_taints=[taint_text(SYSTEM_TAINT)],
        orchestrator_version=config.kubernetes_version,
        creation_data=_creation_data(pool.snapshot_id),
        upgrade_settings=containerservice.AgentPoolUpgradeSettingsArgs(max_surge="1"),
        local_dns_profile=containerservice.LocalDNSProfileArgs(mode=LOCAL_DNS),
        tags=tags,
    )


def system_pool_scales(config: AksConfig) -> bool:
    """Return True if the autoscaler may add system nodes."""
    return config.autoscaling.enabled and config.system_pool.max_nodes > config.system_pool.nodes


def upgrades_version(config: AksConfig) -> bool:
    """Return True if AKS upgrades the minor version automatically.

    The configured version is then only the initial one: the next `up` would otherwise try to downgrade, which
    Kubernetes does not support.
    """
    return config.upgrades.channel in {"stable", "rapid"}


@dataclass(frozen=True, kw_only=True)
class AksNodePoolsArgs:
    """Arguments of AksNodePools.

    Attributes:
        config: the `cluster` section of a stack.
        group: name of the resource group.
        cluster_name: name of the cluster, as an output of the cluster, so that pools depend on it.
        subnet_id: subnet of the nodes.
        tags: tags of the pools, which AKS copies to their machines.
    """

    config: AksConfig
    group: pulumi.Input[str]
    cluster_name: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    tags: Mapping[str, str]


class AksNodePools(Component):
    """The GPU pools of a cluster; its system pool is part of the cluster.

    Attributes:
        gpu: pools of GPU nodes, in order of preference.
    """

    gpu: tuple[containerservice.AgentPool, ...]

    def __init__(
        self, name: str, args: AksNodePoolsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:AksGpuPools", name, opts)
        self._args = args
        self.gpu = tuple(self._pool(pool) for pool in args.config.pools)
        self.register_outputs({"names": [pool.name for pool in self.gpu]})

    def _pool(self, pool: AksPool) -> containerservice.AgentPool:
        """Declare a pool."""
        config = self._args.config
        autoscaled = config.autoscaling.enabled
        return containerservice.AgentPool(
            f"{self.name}-{pool.name}",
            agent_pool_name=pool.name,
            resource_group_name=self._args.group,
            resource_name_=self._args.cluster_name,
            mode="User",
            type="VirtualMachineScaleSets",  # without it AKS returns an error about surge
            vm_size=pool.vm_size,
            os_type="Linux",
            os_sku=OS_SKU,
            os_disk_size_gb=pool.settings.disk_gib,
            gpu_profile=containerservice.GPUProfileArgs(driver=pool.settings.driver),
            count=pool.nodes,
            enable_auto_scaling=autoscaled,
            min_count=pool.min_nodes if autoscaled else None,
            max_count=pool.max_nodes if autoscaled else None,
            scale_down_mode="Delete",
            availability_zones=list(pool.zones) or None,
            vnet_subnet_id=self._args.subnet_id,
            enable_node_public_ip=False,
            node_labels=labels_of(pool),
            node_taints=[taint_text(taint_of(pool))],
            orchestrator_version=config.kubernetes_version,
            creation_data=_creation_data(pool.settings.snapshot_id),
            tags=self._args.tags,
            scale_set_priority="Spot" if pool.spot else "Regular",
            # Deallocated machines would still use quota, and the autoscaler would not try other pools.
            scale_set_eviction_policy="Delete" if pool.spot else None,
            spot_max_price=pool.settings.max_price if pool.spot else None,
            upgrade_settings=_upgrades(pool),
            local_dns_profile=containerservice.LocalDNSProfileArgs(mode=LOCAL_DNS),
            opts=self.child(
                delete_before_replace=True,
                replace_on_changes=FIXED_PROPERTIES,
                ignore_changes=[
                    *(["count"] if autoscaled else []),
                    *(["orchestratorVersion"] if upgrades_version(config) else []),
                ],
                timeout=CREATE_TIMEOUT,
            ),
        )


def _creation_data(snapshot_id: str | None) -> containerservice.CreationDataArgs | None:
    """Return the source of a pool's node image; None for the newest image."""
    if snapshot_id is None:
        return None
    return containerservice.CreationDataArgs(source_resource_id=snapshot_id)


def _upgrades(pool: AksPool) -> containerservice.AgentPoolUpgradeSettingsArgs | None:
    """Return the upgrade settings of a pool; None for a spot pool, where AKS allows none.

    In an on-demand pool, a surge would need additional GPU quota: instead, one node at a time is replaced.
    """
    if pool.spot:
        return None
    return containerservice.AgentPoolUpgradeSettingsArgs(max_surge="0", max_unavailable="1")
