"""Configuration of an AKS cluster and its Blob container."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from cloudfacts import azure
from pydantic import AfterValidator, BeforeValidator, Field

from components.config import catalog, newer_names
from components.config.faults import nearest_hint, refusal
from components.config.proxy import ProxyConfig
from components.config.section import (
    Cidr,
    ClusterName,
    DiskGib,
    NodeCount,
    PrivateAddress,
    Quantity,
    Section,
    matches_pattern,
)

FALLBACK_POOL = "ondemand"
"""Name of the agent pool of `fallbackNodes`."""

DEFAULT_SIZES = {"t4": "Standard_NC4as_T4_v3", "a100": "Standard_NC24ads_A100_v4"}
"""Pool name -> VM size, in order of preference."""

FALLBACK_SUFFIX = "od"  # name suffix of the agent pool with a pool's `fallbackNodes`
NO_MAX_PRICE = -1  # value of `maxPrice`: up to the on-demand price
MAX_POOL_NAME_LENGTH = 12  # limit of AKS for pools of Linux nodes
MAX_RANGES = 200  # limit of AKS for the authorized ranges of an API server
MAX_GROUP_NAME_LENGTH = 90  # limit of Azure Resource Manager


def _has_gpus(vm_size: str) -> str:
    """Check that a VM size has GPUs and is not retired."""
    if vm_size in catalog.AZURE_GPU_SIZES:
        return vm_size
    retired = azure.retired(vm_size)
    if retired:
        raise refusal(f"was retired {retired}", "use Standard_NC4as_T4_v3")
    raise refusal(
        "is not a known VM size with GPUs", nearest_hint(vm_size, catalog.AZURE_GPU_SIZES)
    )


def _is_ordered(sizes: object) -> object:
    """Refuse a mapping: Pulumi passes its keys sorted by name, so the preference would be lost."""
    if isinstance(sizes, Mapping):
        entries = ", ".join(f"{{name: {name}, vmSize: {size}}}" for name, size in sizes.items())
        raise refusal(
            "must be a list in order of preference: Pulumi sorts the keys of a mapping",
            f"write your order, the preferred size first, such as [{entries}]",
        )
    return sizes


def _as_text(zone: object) -> object:
    """Return a zone as text, even if it is an unquoted number."""
    return str(zone) if isinstance(zone, int) else zone


PoolName = Annotated[
    str,
    matches_pattern(
        r"[a-z][a-z0-9]*",
        "a name of an agent pool: lower-case letters and digits",
        "t4",
        max_length=MAX_POOL_NAME_LENGTH,
    ),
]
NamedPoolName = Annotated[
    str,
    matches_pattern(
        r"[a-z][a-z0-9]*",
        "a name of an agent pool: lower-case letters and digits",
        "t4zone1",
        max_length=MAX_POOL_NAME_LENGTH - len(FALLBACK_SUFFIX),
    ),
]
VmSize = Annotated[str, matches_pattern(r"Standard_[A-Za-z0-9_-]+", "a VM size", "Standard_D4s_v5")]
GpuVmSize = Annotated[str, AfterValidator(_has_gpus)]
Location = Annotated[str, newer_names.LOCATION]
KubernetesVersion = Annotated[str, catalog.supported_version()]
Zone = Annotated[Literal["1", "2", "3"], BeforeValidator(_as_text)]
ObjectId = Annotated[
    str,
    matches_pattern(
        r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
        "an object id of an Entra group",
        "11111111-2222-3333-4444-555555555555",
    ),
]
SubscriptionId = Annotated[
    str,
    matches_pattern(
        r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
        "an id of a subscription",
        "22222222-3333-4444-5555-666666666666",
    ),
]
SubnetId = Annotated[
    str,
    matches_pattern(
        r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network"
        r"/virtualNetworks/[^/]+/subnets/[^/]+",
        "an id of a subnet",
        "/subscriptions/.../virtualNetworks/NAME/subnets/NAME",
    ),
]
PrivateDnsZone = Annotated[
    str,
    matches_pattern(
        r"system|none|/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network"
        r"/privateDnsZones/[^/]+",
        "system, none or an id of a private DNS zone",
        "/subscriptions/.../privateDnsZones/privatelink.eastus.azmk8s.io",
    ),
]
SnapshotId = Annotated[
    str,
    matches_pattern(
        r"/subscriptions/[^/]+/resource[Gg]roups/[^/]+/providers/Microsoft\.ContainerService"
        r"/snapshots/[^/]+",
        "an id of a snapshot of a node pool",
        "/subscriptions/.../providers/Microsoft.ContainerService/snapshots/NAME",
    ),
]
GroupName = Annotated[
    str,
    matches_pattern(
        r"[-\w.()]*[-\w()]",
        "a name of a resource group: letters, digits and -_.(), without a trailing dot",
        "team-training",
        max_length=MAX_GROUP_NAME_LENGTH,
    ),
]
AccountName = Annotated[
    str,
    matches_pattern(
        r"[a-z0-9]{3,24}",
        "a name of a storage account: 3 to 24 lower-case letters and digits",
        "everstepdata",
    ),
]
ContainerName = Annotated[
    str,
    matches_pattern(
        r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*",
        "a name of a container: 3 to 63 lower-case letters, digits and single dashes",
        "training",
    ),
]


class AksNetworkConfig(Section):
    """The virtual network: new or existing."""

    cidr: Cidr = Field(default="10.0.0.0/16", description="Addresses of the virtual network.")
    pod_cidr: Cidr = Field(default="10.244.0.0/16", description="Addresses of pods (overlay).")
    service_cidr: Cidr = Field(
        default="10.2.0.0/16", description="Addresses of Kubernetes Services; /12 or smaller."
    )
    subnet_id: SubnetId | None = Field(
        default=None,
        description="Existing subnet with an egress route; absent: a new one is created.",
    )
    egress: Literal["nat", "userDefinedRouting"] = Field(
        default="nat",
        description="Egress of the nodes. `nat`: a NAT gateway. `userDefinedRouting`: the route table of "
        "`subnetId`, or a new one to `firewallIp`.",
    )
    firewall_ip: PrivateAddress | None = Field(
        default=None,
        description="Private address of the firewall to which the route table of a new subnet sends "
        "all egress; required for `userDefinedRouting` without `subnetId`.",
    )
    proxy: ProxyConfig | None = Field(
        default=None, description="HTTP proxy of the nodes; AKS applies it to all pods, too."
    )

    @property
    def dns_service_ip(self) -> str:
        """The address of the cluster's DNS: the tenth of `service_cidr`."""
        return str(ipaddress.IPv4Network(self.service_cidr)[10])


class AksSystemPoolConfig(Section):
    """On-demand CPU nodes for etcd, the controller, data preparation and add-ons."""

    vm_size: VmSize = Field(default="Standard_D4s_v5", description="VM size.")
    nodes: NodeCount = Field(default=2, description="Initial number of nodes.")
    max_nodes: NodeCount = Field(
        default=3, description="Maximum number of nodes; the minimum is `nodes`."
    )
    zones: tuple[Zone, ...] = Field(
        default=("1",), description="Availability zones; none: the cloud chooses."
    )
    disk_gib: DiskGib = Field(default=64, description="Size of a node's disk, in GiB.")
    snapshot_id: SnapshotId | None = Field(
        default=None, description="Snapshot of a node pool, whose node image the nodes keep."
    )


class AksGpuNodesConfig(Section):
    """The keys that all pools of GPU nodes have."""

    capacity: Literal["spot", "onDemand"] = Field(
        default="spot", description="Capacity type of the nodes."
    )
    max_price: float = Field(
        default=NO_MAX_PRICE,
        description="Maximum price of a spot node in USD per hour; -1: up to the on-demand price.",
    )
    driver: Literal["Install", "None"] = Field(
        default="Install", description="`None` if the GPU operator installs the driver."
    )
    disk_gib: DiskGib = Field(default=128, description="Size of a node's disk, in GiB.")
    snapshot_id: SnapshotId | None = Field(
        default=None,
        description="Snapshot of a node pool of N-series machines, whose node image the nodes keep.",
    )


class AksSizeConfig(Section):
    """One VM size of `gpuPool`, with its own agent pool."""

    name: PoolName = Field(description="Name of the agent pool: another name is another pool.")
    vm_size: GpuVmSize = Field(description="VM size with GPUs.")


class AksGpuPoolConfig(AksGpuNodesConfig):
    """The GPU nodes: one agent pool for each VM size."""

    vm_sizes: Annotated[tuple[AksSizeConfig, ...], BeforeValidator(_is_ordered)] = Field(
        default_factory=lambda: tuple(
            AksSizeConfig(name=name, vmSize=size) for name, size in DEFAULT_SIZES.items()
        ),
        min_length=1,
        description="VM sizes with GPUs, in order of preference.",
    )
    min_nodes: NodeCount = Field(default=0, description="Minimum number of nodes of each pool.")
    nodes: NodeCount = Field(default=0, description="Initial number of nodes of the first pool.")
    max_nodes: NodeCount = Field(default=6, description="Maximum number of nodes of each pool.")
    fallback_nodes: NodeCount = Field(
        default=0,
        description="Maximum number of on-demand nodes (of the first VM size) while spot has no capacity.",
    )
    zones: tuple[Zone, ...] = Field(
        default=(), description="Availability zones; none: the cloud chooses."
    )


class AksPoolSizeConfig(Section):
    """The keys that identify one of several pools and count its nodes."""

    name: NamedPoolName = Field(
        description="Name of the agent pool: another name is another pool. The pool of its "
        f"`fallbackNodes` has the same name with the suffix `{FALLBACK_SUFFIX}`."
    )
    zone: Zone | None = Field(
        default=None,
        description="Availability zone of the pool's nodes; absent: the cloud chooses.",
    )
    vm_size: GpuVmSize = Field(description="VM size with GPUs.")
    min_nodes: NodeCount = Field(default=0, description="Minimum number of nodes.")
    nodes: NodeCount = Field(default=0, description="Initial number of nodes.")
    max_nodes: NodeCount = Field(default=6, description="Maximum number of nodes.")
    fallback_nodes: NodeCount = Field(
        default=0, description="Maximum number of on-demand nodes while spot has no capacity."
    )


class AksNamedPoolConfig(AksGpuNodesConfig, AksPoolSizeConfig):
    """One of several pools of GPU nodes: one VM size and, if `zone` is set, one zone."""


@dataclass(frozen=True, kw_only=True)
class AksPool:
    """One agent pool of GPU nodes, from `gpuPool` or from an entry of `gpuPools`.

    Attributes:
        key: path of its VM size in the stack file.
        zones_key: path of its zones in the stack file.
        name: name of the agent pool.
        label: value of its nodes' pool label, the name in `gpuPools`; empty for a pool of `gpuPool`.
        vm_size: VM size of its nodes.
        zones: availability zones of its nodes; empty: the cloud chooses.
        min_nodes: minimum number of nodes.
        nodes: initial number of nodes.
        max_nodes: maximum number of nodes.
        spot: whether its nodes are spot machines.
        fallback: whether it serves only while spot pools have no capacity.
        settings: the keys that all pools have.
    """

    key: str
    zones_key: str
    name: str
    label: str = ""
    vm_size: str
    zones: tuple[str, ...]
    min_nodes: int
    nodes: int
    max_nodes: int
    spot: bool
    fallback: bool = False
    settings: AksGpuNodesConfig

    @property
    def capacity_key(self) -> str:
        """Path of its capacity type in the stack file."""
        return f"{self.zones_key.rpartition('.')[0]}.capacity"


class AksAutoscalingConfig(Section):
    """The cluster autoscaler that AKS runs."""

    enabled: bool = Field(
        default=True,
        description="Whether the number of nodes follows the pods; otherwise it stays at `nodes`.",
    )
    scale_down_minutes: int = Field(
        default=10,
        ge=1,
        le=1440,
        description="Minutes for which a node is idle before it is removed.",
    )


class UpgradesConfig(Section):
    """Automatic upgrades by AKS and their maintenance window."""

    channel: Literal["none", "patch", "stable", "rapid", "node-image"] = Field(
        default="patch", description="Upgrade channel of Kubernetes."
    )
    node_image: Literal["None", "Unmanaged", "SecurityPatch", "NodeImage"] = Field(
        default="NodeImage", description="Upgrade channel of the node images."
    )
    day: Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"] = (
        Field(default="Sunday", description="Day of the maintenance window.")
    )
    start_hour: int = Field(
        default=2, ge=0, le=23, description="Start of the window: hour of the day, UTC."
    )
    hours: int = Field(
        default=4,
        ge=4,
        le=24,
        description="Length of the window in hours; AKS requires at least 4.",
    )


class AksMonitoringConfig(Section):
    """Azure Monitor: logs are billed by the gigabyte, metrics by the sample."""

    container_insights: bool = Field(
        default=False, description="Logs of containers in a Log Analytics workspace."
    )
    managed_prometheus: bool = Field(
        default=False, description="Metrics in an Azure Monitor workspace."
    )
    job_metrics: bool = Field(
        default=False,
        description="Whether metrics of the job, the controller and the GPUs are included; requires "
        "`managedPrometheus`.",
    )


class AksConfig(Section):
    """A cluster on Azure: network, AKS, an on-demand system pool and GPU pools."""

    kind: Literal["aks"] = Field(default="aks", description="`aks`: a new cluster on Azure.")
    name: ClusterName = Field(default="everstep", description="Name of the cluster.")
    subscription: SubscriptionId | None = Field(
        default=None,
        description="The only subscription that the stack may change; absent: the login's subscription.",
    )
    location: Location = Field(default="eastus", description="Azure location.")
    resource_group: GroupName | None = Field(
        default=None, description="Existing resource group; absent: a new one is created."
    )
    kubernetes_version: KubernetesVersion = Field(
        default=catalog.DEFAULT_KUBERNETES_VERSION, description=catalog.KUBERNETES_DESCRIPTION
    )
    network: AksNetworkConfig = Field(
        default_factory=AksNetworkConfig, description="The network: new or existing."
    )
    authorized_ranges: tuple[Cidr, ...] = Field(
        default=(),
        max_length=MAX_RANGES,
        description="Public addresses that may reach the API; required unless privateApi.",
    )
    private_api: bool = Field(
        default=False, description="Whether only the virtual network reaches the API."
    )
    private_dns_zone: PrivateDnsZone = Field(
        default="system",
        description="DNS zone of a private API. `system`: a new zone of AKS. `none`: public DNS with a "
        "private address. Otherwise the id of an existing zone `privatelink.LOCATION.azmk8s.io` or "
        "`NAME.privatelink.LOCATION.azmk8s.io`.",
    )
    administrators: tuple[ObjectId, ...] = Field(
        default=(), description="Object ids of Entra groups that administer the cluster."
    )
    system_pool: AksSystemPoolConfig = Field(
        default_factory=AksSystemPoolConfig, description="On-demand CPU nodes."
    )
    gpu_pool: AksGpuPoolConfig | None = Field(
        default=None, description="The GPU nodes, where workers run."
    )
    gpu_pools: tuple[AksNamedPoolConfig, ...] = Field(
        default=(),
        min_length=1,
        description="Several pools of GPU nodes, each of one VM size, instead of `gpuPool`, in order of "
        "preference.",
    )
    min_gpu_memory_gib: float | None = Field(
        default=None,
        gt=0,
        description="Minimum memory of every GPU of `gpuPools`, in GiB; required if their GPUs differ "
        "in memory.",
    )
    autoscaling: AksAutoscalingConfig = Field(
        default_factory=AksAutoscalingConfig, description="The cluster autoscaler."
    )
    upgrades: UpgradesConfig = Field(
        default_factory=UpgradesConfig, description="Automatic upgrades by AKS."
    )
    monitoring: AksMonitoringConfig = Field(
        default_factory=AksMonitoringConfig, description="Azure Monitor."
    )

    @property
    def dns_zone_id(self) -> str | None:
        """The id of the existing DNS zone of a private API; None if there is none."""
        return self.private_dns_zone if "/" in self.private_dns_zone else None

    @property
    def pools(self) -> tuple[AksPool, ...]:
        """The agent pools of GPU nodes, in order of preference; fallbacks are last."""
        if self.gpu_pools:
            return (
                *(_named_pool(index, pool) for index, pool in enumerate(self.gpu_pools)),
                *(
                    _named_fallback(index, pool)
                    for index, pool in enumerate(self.gpu_pools)
                    if pool.fallback_nodes
                ),
            )
        return _pools_by_size(self.gpu_pool or AksGpuPoolConfig())

    @property
    def gpu_zones(self) -> tuple[str, ...]:
        """The zones of the GPU nodes, the preferred pool's first; empty: the cloud chooses."""
        return tuple(dict.fromkeys(zone for pool in self.pools for zone in pool.zones))

    def zone_label(self, zone: str) -> str:
        """Return the value of the zone label of the nodes in a zone."""
        return f"{self.location}-{zone}"


def _named_pool(index: int, named: AksNamedPoolConfig) -> AksPool:
    """Return one of several pools."""
    return AksPool(
        key=f"cluster.gpuPools[{index}].vmSize",
        zones_key=f"cluster.gpuPools[{index}].zone",
        name=named.name,
        label=named.name,
        vm_size=named.vm_size,
        zones=(named.zone,) if named.zone else (),
        min_nodes=named.min_nodes,
        nodes=named.nodes,
        max_nodes=named.max_nodes,
        spot=named.capacity == "spot",
        settings=named,
    )


def _as_fallback(pool: AksPool, name: str, max_nodes: int) -> AksPool:
    """Return the empty on-demand pool that serves while a spot pool has no capacity."""
    return replace(
        pool, name=name, spot=False, fallback=True, min_nodes=0, nodes=0, max_nodes=max_nodes
    )


def _named_fallback(index: int, named: AksNamedPoolConfig) -> AksPool:
    """Return the fallback of one of several pools."""
    name = f"{named.name}{FALLBACK_SUFFIX}"
    return _as_fallback(_named_pool(index, named), name, named.fallback_nodes)


def _pools_by_size(gpu: AksGpuPoolConfig) -> tuple[AksPool, ...]:
    """Return the pools of `gpuPool`: one for each VM size, and the fallback of the first."""
    spot = gpu.capacity == "spot"
    pools = tuple(
        AksPool(
            key=f"cluster.gpuPool.vmSizes[{index}].vmSize",
            zones_key="cluster.gpuPool.zones",
            name=size.name,
            vm_size=size.vm_size,
            zones=gpu.zones,
            min_nodes=gpu.min_nodes,
            # The job starts on the first pool; the others grow only if it has no capacity.
            nodes=max(gpu.min_nodes, gpu.nodes if index == 0 else 0),
            max_nodes=gpu.max_nodes,
            spot=spot,
            settings=gpu,
        )
        for index, size in enumerate(gpu.vm_sizes)
    )
    if not (spot and gpu.fallback_nodes):
        return pools
    return (*pools, _as_fallback(pools[0], FALLBACK_POOL, gpu.fallback_nodes))


class BlobConfig(Section):
    """A container in a storage account; only with `aks`."""

    kind: Literal["blob"] = Field(default="blob", description="`blob`: Azure Blob storage.")
    account: AccountName | None = Field(
        default=None, description="Existing storage account; absent: a new one is created."
    )
    account_resource_group: GroupName | None = Field(
        default=None, description="Resource group of an existing account; absent: the cluster's."
    )
    keep: bool = Field(
        default=False,
        description="Whether a new account with its container, and the image registry of the stack, are protected "
        "against deletion: `pulumi destroy --exclude-protected` leaves them, and the next `up` uses them again. "
        "`protect` implies it.",
    )
    container: ContainerName = Field(default="training", description="Name of the container.")
    size: Quantity = Field(
        default="100Gi", description="Size to claim; a container does not enforce it."
    )
    protocol: Literal["blobfuse2", "nfs"] = Field(
        default="blobfuse2",
        description="`blobfuse2`: with workload identity. `nfs`: NFS 3.0, protected only by network rules.",
    )
    redundancy: Literal["Standard_LRS", "Standard_ZRS", "Premium_LRS", "Premium_ZRS"] = Field(
        default="Standard_LRS", description="Replication; `Premium` is on SSD."
    )
    retain_days: int = Field(
        default=7,
        ge=0,
        le=365,
        description="Days for which deleted blobs can be restored; 0: never.",
    )

    @property
    def premium(self) -> bool:
        """Whether the account stores its data on SSDs (BlockBlobStorage)."""
        return self.redundancy.startswith("Premium")
