"""An AKS cluster and the Blob container beside it, as a stack file describes them."""

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from components.config import catalog
from components.config.section import (
    Cidr,
    ClusterName,
    DiskGib,
    NodeCount,
    Quantity,
    Section,
    shaped,
)
from components.faults import known_or_nearest, nearest, refused

SYSTEM_POOL = "system"
FALLBACK_POOL = "ondemand"
"""Names of the agent pools that are not in `gpuPool.vmSizes`."""

LONGEST_POOL_NAME = 12  # AKS, Linux


def _has_gpus(vm_size: str) -> str:
    """Check that a VM size has GPUs and can be had."""
    if vm_size in catalog.AZURE_GPUS:
        return vm_size
    for pattern, fate in catalog.AZURE_RETIRED.items():
        if re.match(pattern, vm_size):
            raise refused(fate, "use Standard_NC4as_T4_v3")
    raise refused("is no known VM size with GPUs", nearest(vm_size, tuple(catalog.AZURE_GPUS)))


def _as_text(zone: object) -> object:
    """Take a zone that was written without quotes."""
    return str(zone) if isinstance(zone, int) else zone


PoolName = Annotated[
    str,
    shaped(
        r"[a-z][a-z0-9]*",
        "name of an agent pool: lower-case letters and digits",
        "t4",
        longest=LONGEST_POOL_NAME,
    ),
]
VmSize = Annotated[str, shaped(r"Standard_[A-Za-z0-9_]+", "VM size", "Standard_D4s_v5")]
GpuVmSize = Annotated[str, AfterValidator(_has_gpus)]
Location = Annotated[str, known_or_nearest("Azure location", tuple(catalog.AZURE_LOCATIONS))]
KubernetesVersion = Annotated[str, catalog.supported_version()]
Zone = Annotated[Literal["1", "2", "3"], BeforeValidator(_as_text)]
ObjectId = Annotated[
    str,
    shaped(
        r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
        "object id of an Entra group",
        "11111111-2222-3333-4444-555555555555",
    ),
]
SubnetId = Annotated[
    str,
    shaped(
        r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.Network"
        r"/virtualNetworks/[^/]+/subnets/[^/]+",
        "id of a subnet",
        "/subscriptions/.../virtualNetworks/NAME/subnets/NAME",
    ),
]
AccountName = Annotated[
    str,
    shaped(
        r"[a-z0-9]{3,24}",
        "name of a storage account: 3 to 24 lower-case letters and digits",
        "everstepdata",
    ),
]
ContainerName = Annotated[
    str,
    shaped(
        r"(?=.{3,63}$)[a-z0-9]+(-[a-z0-9]+)*",
        "name of a container: 3 to 63 lower-case letters, digits and single dashes",
        "training",
    ),
]


class AksNetworkConfig(Section):
    """The virtual network: made, or the user's own."""

    cidr: Cidr = Field(default="10.0.0.0/16", description="Addresses of the virtual network.")
    pod_cidr: Cidr = Field(default="10.244.0.0/16", description="Addresses of pods (overlay).")
    service_cidr: Cidr = Field(
        default="10.2.0.0/16", description="Addresses of Kubernetes Services; /12 or smaller."
    )
    subnet_id: SubnetId | None = Field(
        default=None, description="A subnet of your own, with a way out; absent: one is made."
    )

    @property
    def dns_service_ip(self) -> str:
        """The address of the cluster's DNS: the tenth of the Services'."""
        return str(ipaddress.IPv4Network(self.service_cidr)[10])


class AksSystemPoolConfig(Section):
    """On-demand CPU nodes that stay: etcd, controller, data preparation, add-ons."""

    vm_size: VmSize = Field(default="Standard_D4s_v5", description="VM size.")
    nodes: NodeCount = Field(default=2, description="Nodes to start with.")
    max_nodes: NodeCount = Field(default=3, description="Most nodes; the fewest is `nodes`.")
    zones: tuple[Zone, ...] = Field(
        default=("1",), description="Availability zones; none: wherever there is room."
    )
    disk_gib: DiskGib = Field(default=64, description="Size of a node's disk, in GiB.")


class AksGpuPoolConfig(Section):
    """The GPU nodes: one agent pool for each VM size."""

    vm_sizes: dict[PoolName, GpuVmSize] = Field(
        default_factory=lambda: {"t4": "Standard_NC4as_T4_v3", "a10": "Standard_NV6ads_A10_v5"},
        min_length=1,
        description="Pool name -> VM size with GPUs, in order of preference.",
    )
    min_nodes: NodeCount = Field(default=0, description="Fewest nodes of each pool.")
    nodes: NodeCount = Field(default=3, description="Nodes to start with, in the first pool.")
    max_nodes: NodeCount = Field(default=6, description="Most nodes of each pool.")
    capacity: Literal["spot", "onDemand"] = Field(
        default="spot", description="How they are bought."
    )
    max_price: float = Field(
        default=-1,
        description="Most to pay for a spot node, in USD per hour; -1: up to the on-demand price.",
    )
    fallback_nodes: NodeCount = Field(
        default=0,
        description="On-demand nodes (of the first VM size) that may be bought while spot has none.",
    )
    driver: Literal["Install", "None"] = Field(
        default="Install", description="`None` where the GPU operator brings the driver."
    )
    zones: tuple[Zone, ...] = Field(
        default=(), description="Availability zones; none: wherever there is room."
    )
    disk_gib: DiskGib = Field(default=128, description="Size of a node's disk, in GiB.")


class AksAutoscalingConfig(Section):
    """The cluster autoscaler that AKS runs."""

    enabled: bool = Field(
        default=True, description="Whether nodes come and go with the pods; else `nodes` stay."
    )
    scale_down_minutes: int = Field(
        default=10, ge=1, le=1440, description="Minutes a node must be idle before it goes."
    )


class UpgradesConfig(Section):
    """What AKS upgrades by itself, and when."""

    channel: Literal["none", "patch", "stable", "rapid", "node-image"] = Field(
        default="patch", description="Which versions of Kubernetes it moves to."
    )
    node_image: Literal["None", "Unmanaged", "SecurityPatch", "NodeImage"] = Field(
        default="NodeImage", description="Which images of the nodes' system it moves to."
    )
    day: Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"] = (
        Field(default="Sunday", description="Day of the maintenance window.")
    )
    start_hour: int = Field(default=2, ge=0, le=23, description="Hour it starts, UTC.")
    hours: int = Field(default=4, ge=4, le=24, description="Hours it lasts; AKS asks for 4.")


class MonitoringConfig(Section):
    """Azure's own monitoring; costs by the gigabyte."""

    container_insights: bool = Field(
        default=False, description="Logs of containers in a Log Analytics workspace."
    )
    managed_prometheus: bool = Field(
        default=False, description="Metrics in an Azure Monitor workspace."
    )


class AksConfig(Section):
    """A cluster on Azure: network, AKS, an on-demand system pool and GPU spot pools."""

    kind: Literal["aks"] = Field(default="aks", description="`aks`: a cluster made on Azure.")
    name: ClusterName = Field(default="everstep", description="Name of the cluster.")
    location: Location = Field(default="eastus", description="Azure location.")
    resource_group: str | None = Field(
        default=None, description="A resource group of your own; absent: one is made."
    )
    kubernetes_version: KubernetesVersion = Field(
        default="1.36", description="Kubernetes, 1.35 to 1.37."
    )
    network: AksNetworkConfig = Field(
        default_factory=AksNetworkConfig, description="The network: made, or your own."
    )
    authorized_ranges: tuple[Cidr, ...] = Field(
        default=(),
        max_length=200,
        description="Public addresses that may reach the API; needed unless privateApi.",
    )
    private_api: bool = Field(default=False, description="API in the virtual network only.")
    administrators: tuple[ObjectId, ...] = Field(
        default=(), description="Object ids of Entra groups that administer the cluster."
    )
    system_pool: AksSystemPoolConfig = Field(
        default_factory=AksSystemPoolConfig, description="On-demand CPU nodes that stay."
    )
    gpu_pool: AksGpuPoolConfig = Field(
        default_factory=AksGpuPoolConfig, description="The GPU nodes, where workers run."
    )
    autoscaling: AksAutoscalingConfig = Field(
        default_factory=AksAutoscalingConfig, description="The cluster autoscaler."
    )
    upgrades: UpgradesConfig = Field(
        default_factory=UpgradesConfig, description="What AKS upgrades by itself."
    )
    monitoring: MonitoringConfig = Field(
        default_factory=MonitoringConfig, description="Azure's own monitoring."
    )


class BlobConfig(Section):
    """A container in a storage account; only with `aks`."""

    kind: Literal["blob"] = Field(default="blob", description="`blob`: Azure Blob storage.")
    account: AccountName | None = Field(
        default=None, description="A storage account of your own; absent: one is made."
    )
    account_resource_group: str | None = Field(
        default=None, description="Resource group of your own account; absent: the cluster's."
    )
    container: ContainerName = Field(default="training", description="Name of the container.")
    size: Quantity = Field(
        default="100Gi", description="Size to claim; a container does not hold to it."
    )
    protocol: Literal["blobfuse2", "nfs"] = Field(
        default="blobfuse2",
        description="`blobfuse2`: with workload identity. `nfs`: NFS 3.0, by network rules alone.",
    )
    redundancy: Literal["Standard_LRS", "Standard_ZRS", "Premium_LRS", "Premium_ZRS"] = Field(
        default="Standard_LRS", description="Copies, and SSD (`Premium`) or not."
    )
    retain_days: int = Field(
        default=7, ge=0, le=365, description="Days that deleted blobs can be restored; 0: never."
    )

    @property
    def premium(self) -> bool:
        """Whether the account is one of SSDs (BlockBlobStorage)."""
        return self.redundancy.startswith("Premium")
