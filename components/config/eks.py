"""Configuration of an EKS cluster and its FSx for Lustre file system."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from components.config import catalog, newer_names
from components.config.faults import known_or_nearest, nearest_hint, refusal
from components.config.proxy import ProxyConfig
from components.config.section import (
    MAX_CLUSTER_NAME_LENGTH,
    Cidr,
    ClusterName,
    DiskGib,
    Image,
    NodeCount,
    Section,
    matches_pattern,
)

MAX_FSX_GIB = 2_147_481_600  # FSx API, StorageCapacity: at most 2147483647, in multiples of 2400
MIN_THROUGHPUT = 125  # minimum and default of PERSISTENT_2, in MB/s per TiB
FALLBACK_SUFFIX = "-on-demand"  # name suffix of the node group with a pool's `fallbackNodes`
MAX_POOL_NAME_LENGTH = 63 - MAX_CLUSTER_NAME_LENGTH - len("-gpu-") - len(FALLBACK_SUFFIX)
INSIGHTS_LOG_GROUPS = ("performance", "application", "dataplane", "host")
"""Last parts of the names of Container Insights' log groups. Source: CloudWatch User Guide, "Container Insights
performance log events" and "Send logs to CloudWatch Logs", 2026-11."""
LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)
"""Retention periods that CloudWatch Logs offers, up to two years."""


def _has_gpus(instance_type: str) -> str:
    """Check that workers can use an instance type: it has whole NVIDIA GPUs that the AMI supports."""
    if instance_type in catalog.AWS_GPU_TYPES:
        return instance_type
    family = instance_type.partition(".")[0]
    if family in catalog.AWS_UNUSABLE_FAMILIES:
        reason, _, fix = catalog.AWS_UNUSABLE_FAMILIES[family].partition("; ")
        raise refusal(reason, fix)
    raise refusal(
        "is not a known instance type for GPU nodes",
        nearest_hint(instance_type, catalog.AWS_GPU_TYPES),
    )


def _is_offered(days: int) -> int:
    """Check that CloudWatch Logs offers a retention period."""
    if days in LOG_RETENTION_DAYS:
        return days
    raise refusal(
        "is not a retention period of CloudWatch Logs",
        "use one of " + ", ".join(map(str, LOG_RETENTION_DAYS)),
    )


def _without_price_ceiling(price: float | None) -> None:
    """Refuse a price ceiling, with the reason."""
    if price is not None:
        raise refusal(
            "is not possible: EKS refuses market options in the template of a managed node group, "
            "and a spot node never costs more than on demand",
            "remove it",
        )


InstanceType = Annotated[
    str, matches_pattern(r"[a-z0-9-]+\.[a-z0-9-]+", "an instance type", "m6i.xlarge")
]
GpuInstanceType = Annotated[str, AfterValidator(_has_gpus)]
Region = Annotated[str, newer_names.REGION]
KubernetesVersion = Annotated[str, catalog.supported_version()]
NodeRelease = Annotated[
    str,
    matches_pattern(
        r"1\.\d{2}\.\d+-\d{8}", "a release of an EKS AMI: version and date", "1.36.0-20261101"
    ),
]
AddonName = Annotated[
    str, known_or_nearest("add-on", (*catalog.EKS_ADDONS, catalog.CLOUDWATCH_ADDON))
]
AddonVersion = Annotated[
    str,
    matches_pattern(r"v\d+\.\d+\.\d+-eksbuild\.\d+", "a version of an add-on", "v1.9.0-eksbuild.1"),
]
IamArn = Annotated[
    str,
    matches_pattern(
        r"arn:aws[a-z-]*:iam::[0-9]{12}:(user|role)/\S+",
        "an ARN of an IAM user or role",
        "arn:aws:iam::123456789012:role/platform",
    ),
]
PolicyArn = Annotated[
    str,
    matches_pattern(
        r"arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/([!-~]+/)?[\w+=,.@-]{1,128}",
        "an ARN of an IAM policy",
        "arn:aws:iam::123456789012:policy/boundary",
    ),
]
# IAM API Reference, CreateRole and CreatePolicy, 2026-11: the form that both accept.
IamPath = Annotated[
    str,
    matches_pattern(
        r"(/[A-Za-z0-9.,+@=_-]+)*/",
        "an IAM path: / or a path that begins and ends with /",
        "/everstep/",
        max_length=512,
    ),
]
KmsKeyArn = Annotated[
    str,
    matches_pattern(
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/(mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})",
        "an ARN of a KMS key (not of an alias)",
        "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    ),
]
AccountId = Annotated[
    str,
    matches_pattern(
        r"[0-9]{12}", "an id of an AWS account: twelve digits", '"123456789012", quoted'
    ),
]
VpcId = Annotated[
    str, matches_pattern(r"vpc-[0-9a-f]{8,17}", "an id of a VPC", "vpc-0123456789abcdef0")
]
SubnetId = Annotated[
    str, matches_pattern(r"subnet-[0-9a-f]{8,17}", "an id of a subnet", "subnet-0123456789abcdef0")
]
PoolName = Annotated[
    str,
    matches_pattern(
        r"[a-z]([-a-z0-9]*[a-z0-9])?",
        "a name of a pool: lower-case letters, digits and dashes",
        "g5-a",
        max_length=MAX_POOL_NAME_LENGTH,
    ),
]
FileSystemId = Annotated[
    str, matches_pattern(r"fs-[0-9a-f]{8,17}", "an id of a file system", "fs-0123456789abcdef0")
]
MountName = Annotated[str, matches_pattern(r"[a-z0-9]{1,8}", "a mount name", "fsx or a1b2c3d4")]
DnsName = Annotated[
    str,
    matches_pattern(
        r"[a-z0-9-]+(\.[a-z0-9-]+)+",
        "a DNS name of a file system",
        "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
    ),
]
ReservationId = Annotated[
    str,
    matches_pattern(
        r"cr-[0-9a-f]{8,17}", "an id of a capacity reservation", "cr-0123456789abcdef0"
    ),
]
BucketName = Annotated[
    str,
    matches_pattern(
        r"(?=.{3,63}$)(?!\d+\.\d+\.\d+\.\d+$)[a-z0-9]([a-z0-9-]|\.(?!\.))*[a-z0-9]",
        "a name of an S3 bucket: 3 to 63 lower-case letters, digits, dashes and single dots, "
        "not in the form of an IP address",
        "my-training-data, without s3://",
    ),
]


class EksNetworkConfig(Section):
    """The VPC: new or existing."""

    cidr: Cidr = Field(default="10.0.0.0/16", description="Addresses of the VPC, /16 to /21.")
    service_cidr: Cidr = Field(
        default="172.20.0.0/16", description="Addresses of Kubernetes Services, outside the VPC."
    )
    nat_per_zone: bool = Field(
        default=False,
        description="Whether each zone has its own NAT gateway: more resilient, more expensive.",
    )
    vpc_id: VpcId | None = Field(
        default=None,
        description="Existing VPC; absent: a new one is created. Needs privateSubnetIds.",
    )
    private_subnet_ids: dict[str, SubnetId] = Field(
        default_factory=dict,
        description="Zone -> private subnet of an existing VPC, one for every zone.",
    )
    proxy: ProxyConfig | None = Field(
        default=None,
        description="HTTP proxy of the nodes: nodeadm, containerd and the kubelet; pods get no proxy variables.",
    )


class EksSystemPoolConfig(Section):
    """On-demand CPU nodes for etcd, the controller, data preparation and add-ons."""

    instance_types: tuple[InstanceType, ...] = Field(
        default=("m6i.xlarge",), min_length=1, description="Instance types in order of preference."
    )
    nodes: NodeCount = Field(default=2, description="Initial number of nodes.")
    max_nodes: NodeCount = Field(
        default=3, description="Maximum number of nodes; the minimum is `nodes`."
    )
    disk_gib: DiskGib = Field(default=50, description="Size of a node's disk, in GiB.")


class EksReservationConfig(Section):
    """Machines that the account has reserved."""

    id: ReservationId = Field(
        description="On-Demand Capacity Reservation or Capacity Block of the pool's zone and instance type."
    )
    capacity_block: bool = Field(
        default=False,
        description="Whether it is a Capacity Block for ML, which ends at a fixed time.",
    )


class EksGpuPoolConfig(Section):
    """The GPU nodes, all in the zone of the file system."""

    zone: str | None = Field(
        default=None,
        description="Zone of the GPU nodes, any of the region; absent: the first of `zones`.",
    )
    instance_types: tuple[GpuInstanceType, ...] = Field(
        default=("g5.xlarge", "g6.xlarge", "g6e.xlarge", "g6.8xlarge"),
        min_length=1,
        description="Instance types with the same number of GPUs; more types mean fewer interruptions.",
    )
    min_nodes: NodeCount = Field(default=0, description="Minimum number of nodes.")
    nodes: NodeCount = Field(default=0, description="Initial number of nodes.")
    max_nodes: NodeCount = Field(default=6, description="Maximum number of nodes.")
    capacity: Literal["spot", "onDemand"] = Field(
        default="spot", description="Capacity type of the nodes."
    )
    disk_gib: DiskGib = Field(default=100, description="Size of a node's disk, in GiB.")
    fallback_nodes: NodeCount = Field(
        default=0, description="Maximum number of on-demand nodes while spot has no capacity."
    )
    efa: bool = Field(
        default=False,
        description="Elastic Fabric Adapter, in a placement group unless the machines are reserved; needs a single "
        "instance type with EFA.",
    )
    reservation: EksReservationConfig | None = Field(
        default=None,
        description="Reserved machines, the only ones that the pool uses; needs `capacity: onDemand` and a single "
        "instance type.",
    )


class _PoolNameConfig(Section):
    """The key that identifies one of several pools."""

    name: PoolName = Field(
        description="Name of the pool, part of its resources' names: another name is another pool."
    )


class EksNamedPoolConfig(EksGpuPoolConfig, _PoolNameConfig):
    """One of several pools of GPU nodes, each in one zone."""

    zone: str = Field(description="Zone of the pool's nodes, any of the region.")
    max_price: Annotated[float | None, AfterValidator(_without_price_ceiling)] = Field(
        default=None,
        description="Not possible on EKS: its managed node groups pay the market price, at most "
        "the on-demand price.",
    )


@dataclass(frozen=True, kw_only=True)
class EksPool:
    """One pool of GPU nodes, from `gpuPool` or from an entry of `gpuPools`.

    Attributes:
        key: the key of the stack file that declares it, such as `cluster.gpuPools[1]`.
        name: its name; empty for `gpuPool`.
        zone: zone of its nodes.
        settings: its other keys.
    """

    key: str
    name: str
    zone: str
    settings: EksGpuPoolConfig


class EksAutoscalingConfig(Section):
    """The cluster autoscaler."""

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
    image: Image = Field(
        default="registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.0",
        description="Image of the autoscaler, for the cluster's version of Kubernetes.",
    )


class EksMonitoringConfig(Section):
    """Amazon CloudWatch and Amazon Managed Service for Prometheus."""

    container_insights: bool = Field(
        default=False,
        description="Metrics of nodes, pods and GPUs, billed per observation, and logs of containers, billed by the "
        "gigabyte, in CloudWatch.",
    )
    managed_prometheus: bool = Field(
        default=False,
        description="Metrics of the job, the controller and the GPUs in a workspace of Amazon Managed Service for "
        "Prometheus, to which a Prometheus agent in the cluster sends them; billed by the sample.",
    )
    image: Image = Field(
        default="quay.io/prometheus/prometheus:v3.15.1",
        description="Image of the Prometheus agent.",
    )


class EksIamConfig(Section):
    """Constraints of the account on the IAM roles that a stack creates."""

    permissions_boundary: PolicyArn | None = Field(
        default=None,
        description="ARN of the policy that is the permissions boundary of every role; absent: none.",
    )
    path: IamPath = Field(
        default="/",
        description="Path of every role, such as `/everstep/`. Another path replaces the roles, the cluster and "
        "its nodes.",
    )


class EksConfig(Section):
    """A cluster on AWS: VPC, EKS, an on-demand system pool and GPU pools."""

    kind: Literal["eks"] = Field(default="eks", description="`eks`: a new cluster on AWS.")
    name: ClusterName = Field(default="everstep", description="Name of the cluster.")
    account: AccountId | None = Field(
        default=None,
        description="The only AWS account that the stack may change; absent: the credentials' account.",
    )
    region: Region = Field(default="us-east-1", description="AWS region.")
    zones: tuple[str, ...] = Field(
        default=("us-east-1a", "us-east-1b"),
        min_length=2,
        max_length=3,
        description="Two or three availability zones of the region, for the control plane and the system pool.",
    )
    kubernetes_version: KubernetesVersion = Field(
        default=catalog.DEFAULT_KUBERNETES_VERSION, description=catalog.KUBERNETES_DESCRIPTION
    )
    node_release: NodeRelease | None = Field(
        default=None,
        description="Release of the AMIs of all nodes, such as 1.36.0-20261101; absent: the newest one when a node "
        "group is created or upgraded.",
    )
    network: EksNetworkConfig = Field(
        default_factory=EksNetworkConfig, description="The VPC: new or existing."
    )
    public_access: tuple[Cidr, ...] = Field(
        default=(),
        max_length=40,
        description="Public addresses that may reach the API; none: only the VPC may.",
    )
    administrators: tuple[IamArn, ...] = Field(
        default=(),
        description="IAM users and roles that administer the cluster, including the identity that runs "
        "`pulumi up`; if empty, the creator becomes administrator.",
    )
    iam: EksIamConfig = Field(
        default_factory=EksIamConfig, description="The IAM roles that the stack creates."
    )
    kms_key_arn: KmsKeyArn | None = Field(
        default=None,
        description="Existing KMS key for Secrets, disks, logs, the bucket, the registry and a PERSISTENT_2 file "
        "system; absent: new keys for Secrets and the file system, and AWS's own keys for the others.",
    )
    log_retention_days: Annotated[int, AfterValidator(_is_offered)] = Field(
        default=30,
        description="Retention of the logs of the control plane and of Container Insights, in days.",
    )
    system_pool: EksSystemPoolConfig = Field(
        default_factory=EksSystemPoolConfig, description="On-demand CPU nodes."
    )
    gpu_pool: EksGpuPoolConfig | None = Field(
        default=None, description="The GPU nodes, where workers run, in one zone."
    )
    gpu_pools: tuple[EksNamedPoolConfig, ...] = Field(
        default=(),
        min_length=1,
        description="Several pools of GPU nodes instead of `gpuPool`, in order of preference; a "
        "new file system is in the zone of the first.",
    )
    min_gpu_memory_gib: float | None = Field(
        default=None,
        gt=0,
        description="Minimum memory of every GPU of `gpuPools`, in GiB; required if their GPUs differ "
        "in memory.",
    )
    autoscaling: EksAutoscalingConfig = Field(
        default_factory=EksAutoscalingConfig, description="The cluster autoscaler."
    )
    monitoring: EksMonitoringConfig = Field(
        default_factory=EksMonitoringConfig, description="Metrics and logs in services of AWS."
    )
    addon_versions: dict[AddonName, AddonVersion] = Field(
        default_factory=dict,
        description="EKS add-on -> version; absent: AWS's default version for `kubernetesVersion`.",
    )

    @property
    def insights_log_groups(self) -> tuple[str, ...]:
        """Names of the log groups of Container Insights, which AWS prescribes."""
        if not self.monitoring.container_insights:
            return ()
        return tuple(f"/aws/containerinsights/{self.name}/{group}" for group in INSIGHTS_LOG_GROUPS)

    @property
    def addons(self) -> tuple[str, ...]:
        """Names of the add-ons."""
        insights = (catalog.CLOUDWATCH_ADDON,) if self.monitoring.container_insights else ()
        return (*catalog.EKS_ADDONS, *insights)

    @property
    def pools(self) -> tuple[EksPool, ...]:
        """The pools of GPU nodes, in order of preference."""
        if self.gpu_pools:
            return tuple(
                EksPool(
                    key=f"cluster.gpuPools[{index}]", name=pool.name, zone=pool.zone, settings=pool
                )
                for index, pool in enumerate(self.gpu_pools)
            )
        pool = self.gpu_pool or EksGpuPoolConfig()
        zone = pool.zone or self.zones[0]
        return (EksPool(key="cluster.gpuPool", name="", zone=zone, settings=pool),)

    @property
    def gpu_zones(self) -> tuple[str, ...]:
        """The zones of the GPU nodes, the preferred pool's first."""
        return tuple(dict.fromkeys(pool.zone for pool in self.pools))

    @property
    def node_zones(self) -> tuple[str, ...]:
        """The zones with nodes: the zones of the control plane, and others that have a GPU pool."""
        return tuple(dict.fromkeys((*self.zones, *self.gpu_zones)))

    @property
    def file_system_zone(self) -> str:
        """The zone of a new file system: the preferred pool's."""
        return self.gpu_zones[0]


class FsxFileSystemConfig(Section):
    """An existing file system."""

    file_system_id: FileSystemId = Field(description="Id of the file system: fs-...")
    dns_name: DnsName = Field(description="DNS name of the file system, as in the console.")
    mount_name: MountName = Field(description="Mount name of the file system, as in the console.")
    zone: str = Field(description="Zone of the file system, in which the GPU nodes must be.")


class FsxConfig(Section):
    """FSx for Lustre over an S3 bucket; only with `eks`."""

    kind: Literal["fsx"] = Field(default="fsx", description="`fsx`: FSx for Lustre.")
    deployment_type: Literal["SCRATCH_2", "PERSISTENT_2"] = Field(
        default="SCRATCH_2",
        description="`SCRATCH_2`: cheaper, no replica. `PERSISTENT_2`: replicated in its zone.",
    )
    size_gib: int = Field(
        default=1200,
        ge=1200,
        le=MAX_FSX_GIB,
        description="Capacity in GiB: 1200, 2400 or a multiple of 2400.",
    )
    throughput: Literal[125, 250, 500, 1000] | None = Field(
        default=None,
        description=f"PERSISTENT_2: MB/s per TiB, {MIN_THROUGHPUT} to 1000; absent: {MIN_THROUGHPUT}. "
        "Not for SCRATCH_2.",
    )
    bucket: BucketName | None = Field(
        default=None, description="Existing S3 bucket to link; absent: a new one is created."
    )
    keep: bool = Field(
        default=False,
        description="Whether a new bucket and the image registry of the stack are protected against deletion: "
        "`pulumi destroy --exclude-protected` leaves them, and the next `up` uses them again. `protect` implies it.",
    )
    compression: Literal["LZ4", "NONE"] = Field(
        default="LZ4", description="Compression of the stored data."
    )
    existing: FsxFileSystemConfig | None = Field(
        default=None, description="Existing file system; absent: a new one is created."
    )

    @property
    def tier(self) -> str:
        """The deployment type and throughput by which AWS bills a new file system."""
        if self.deployment_type == "SCRATCH_2":
            return self.deployment_type
        return f"{self.deployment_type}-{self.throughput or MIN_THROUGHPUT}"
