"""An EKS cluster and the FSx for Lustre file system beside it, as a stack file describes them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from components.config import catalog
from components.config.section import (
    Cidr,
    ClusterName,
    DiskGib,
    Image,
    NodeCount,
    Section,
    shaped,
)
from components.faults import known_or_nearest, nearest, refused

LOG_RETENTION_DAYS = (1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731)
"""What CloudWatch Logs offers, up to two years."""


def _has_gpus(instance_type: str) -> str:
    """Check that an instance type has GPUs and can be had."""
    if instance_type in catalog.AWS_GPUS:
        return instance_type
    family = instance_type.partition(".")[0]
    if family in catalog.AWS_UNFIT:
        reason, _, cure = catalog.AWS_UNFIT[family].partition("; ")
        raise refused(reason, cure)
    raise refused("is no known instance type with GPUs", nearest(instance_type, _GPU_TYPES))


def _is_offered(days: int) -> int:
    """Check that CloudWatch Logs keeps logs for so many days."""
    if days in LOG_RETENTION_DAYS:
        return days
    raise refused(
        "is no period that CloudWatch Logs offers",
        "use one of " + ", ".join(map(str, LOG_RETENTION_DAYS)),
    )


_GPU_TYPES = tuple(catalog.AWS_GPUS)

InstanceType = Annotated[str, shaped(r"[a-z0-9-]+\.[a-z0-9-]+", "instance type", "m6i.xlarge")]
GpuInstanceType = Annotated[str, AfterValidator(_has_gpus)]
Region = Annotated[str, known_or_nearest("AWS region", tuple(catalog.AWS_ZONES))]
KubernetesVersion = Annotated[str, catalog.supported_version()]
AddonName = Annotated[str, known_or_nearest("add-on", tuple(catalog.EKS_ADDONS))]
AddonVersion = Annotated[
    str, shaped(r"v\d+\.\d+\.\d+-eksbuild\.\d+", "version of an add-on", "v1.9.0-eksbuild.1")
]
IamArn = Annotated[
    str,
    shaped(
        r"arn:aws[a-z-]*:iam::[0-9]{12}:(user|role)/\S+",
        "ARN of an IAM user or role",
        "arn:aws:iam::123456789012:role/platform",
    ),
]
VpcId = Annotated[str, shaped(r"vpc-[0-9a-f]{8,17}", "id of a VPC", "vpc-0123456789abcdef0")]
SubnetId = Annotated[
    str, shaped(r"subnet-[0-9a-f]{8,17}", "id of a subnet", "subnet-0123456789abcdef0")
]
FileSystemId = Annotated[
    str, shaped(r"fs-[0-9a-f]{8,17}", "id of a file system", "fs-0123456789abcdef0")
]
MountName = Annotated[str, shaped(r"[a-z0-9]{1,8}", "mount name", "fsx or a1b2c3d4")]
BucketName = Annotated[
    str,
    shaped(
        r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        "name of an S3 bucket: 3 to 63 lower-case letters, digits, dots and dashes",
        "my-training-data, without s3://",
    ),
]


class EksNetworkConfig(Section):
    """The VPC: made, or the user's own."""

    cidr: Cidr = Field(default="10.0.0.0/16", description="Addresses of the VPC, /16 to /21.")
    service_cidr: Cidr = Field(
        default="172.20.0.0/16", description="Addresses of Kubernetes Services, outside the VPC."
    )
    nat_per_zone: bool = Field(
        default=False, description="A NAT gateway a zone rather than one for all: safer, dearer."
    )
    vpc_id: VpcId | None = Field(
        default=None, description="A VPC of your own; absent: one is made. Needs privateSubnetIds."
    )
    private_subnet_ids: dict[str, SubnetId] = Field(
        default_factory=dict,
        description="Of your own VPC, zone -> private subnet, one for every zone.",
    )


class EksSystemPoolConfig(Section):
    """On-demand CPU nodes that stay: etcd, controller, data preparation, add-ons."""

    instance_types: tuple[InstanceType, ...] = Field(
        default=("m6i.xlarge",), min_length=1, description="Instance types, first choice first."
    )
    nodes: NodeCount = Field(default=2, description="Nodes to start with.")
    max_nodes: NodeCount = Field(default=3, description="Most nodes; the fewest is `nodes`.")
    disk_gib: DiskGib = Field(default=50, description="Size of a node's disk, in GiB.")


class EksGpuPoolConfig(Section):
    """The GPU nodes, all in one zone: that of the file system."""

    zone: str | None = Field(default=None, description="Their zone; absent: the first of `zones`.")
    instance_types: tuple[GpuInstanceType, ...] = Field(
        default=("g5.xlarge", "g6.xlarge"),
        min_length=1,
        description="Instance types with the same number of GPUs; more types, fewer interruptions.",
    )
    min_nodes: NodeCount = Field(default=0, description="Fewest nodes.")
    nodes: NodeCount = Field(default=3, description="Nodes to start with.")
    max_nodes: NodeCount = Field(default=6, description="Most nodes.")
    capacity: Literal["spot", "onDemand"] = Field(
        default="spot", description="How they are bought."
    )
    disk_gib: DiskGib = Field(default=100, description="Size of a node's disk, in GiB.")
    fallback_nodes: NodeCount = Field(
        default=0, description="On-demand nodes that may be bought while spot has none."
    )
    efa: bool = Field(
        default=False,
        description="Elastic Fabric Adapter: one instance type that has it, a placement group.",
    )


class EksAutoscalingConfig(Section):
    """The cluster autoscaler."""

    enabled: bool = Field(
        default=True, description="Whether nodes come and go with the pods; else `nodes` stay."
    )
    scale_down_minutes: int = Field(
        default=10, ge=1, le=1440, description="Minutes a node must be idle before it goes."
    )
    image: Image = Field(
        default="registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.0",
        description="Its image; of the cluster's Kubernetes version.",
    )


class EksConfig(Section):
    """A cluster on AWS: VPC, EKS, an on-demand system pool and a GPU spot pool."""

    kind: Literal["eks"] = Field(default="eks", description="`eks`: a cluster made on AWS.")
    name: ClusterName = Field(default="everstep", description="Name of the cluster.")
    region: Region = Field(default="us-east-1", description="AWS region.")
    zones: tuple[str, ...] = Field(
        default=("us-east-1a", "us-east-1b"),
        min_length=2,
        max_length=3,
        description="Two or three availability zones of the region.",
    )
    kubernetes_version: KubernetesVersion = Field(
        default="1.36", description="Kubernetes, 1.35 to 1.37."
    )
    network: EksNetworkConfig = Field(
        default_factory=EksNetworkConfig, description="The VPC: made, or your own."
    )
    public_access: tuple[Cidr, ...] = Field(
        default=(),
        max_length=40,
        description="Public addresses that may reach the API; none: only the VPC may.",
    )
    administrators: tuple[IamArn, ...] = Field(
        default=(),
        description="IAM users and roles that administer the cluster, also that which runs "
        "`pulumi up`; none: whoever makes the cluster.",
    )
    log_retention_days: Annotated[int, AfterValidator(_is_offered)] = Field(
        default=30, description="Days that the control plane's logs are kept."
    )
    system_pool: EksSystemPoolConfig = Field(
        default_factory=EksSystemPoolConfig, description="On-demand CPU nodes that stay."
    )
    gpu_pool: EksGpuPoolConfig = Field(
        default_factory=EksGpuPoolConfig, description="The GPU nodes, where workers run."
    )
    autoscaling: EksAutoscalingConfig = Field(
        default_factory=EksAutoscalingConfig, description="The cluster autoscaler."
    )
    addon_versions: dict[AddonName, AddonVersion] = Field(
        default_factory=dict,
        description="EKS add-on -> version, for those that shall differ from the pinned ones.",
    )

    @property
    def gpu_zone(self) -> str:
        """The zone of the GPU nodes and of the file system."""
        return self.gpu_pool.zone or self.zones[0]

    @property
    def addons(self) -> dict[str, str]:
        """The add-ons and their versions: those pinned for this Kubernetes, then the user's own."""
        return {**catalog.addon_versions(self.kubernetes_version), **self.addon_versions}


class FsxFileSystemConfig(Section):
    """A file system that is there already."""

    file_system_id: FileSystemId = Field(description="Its id: fs-...")
    dns_name: str = Field(description="Its DNS name, as the console shows it.")
    mount_name: MountName = Field(description="Its mount name, as the console shows it.")
    zone: str = Field(description="The zone it stands in: that of the GPU nodes.")


class FsxConfig(Section):
    """FSx for Lustre over an S3 bucket; only with `eks`."""

    kind: Literal["fsx"] = Field(default="fsx", description="`fsx`: FSx for Lustre.")
    deployment_type: Literal["SCRATCH_2", "PERSISTENT_2"] = Field(
        default="SCRATCH_2",
        description="`SCRATCH_2`: cheaper, no replica. `PERSISTENT_2`: replicated in its zone.",
    )
    size_gib: int = Field(
        default=1200, ge=1200, description="Capacity in GiB: 1200, 2400 or a multiple of 2400."
    )
    throughput: Literal[125, 250, 500, 1000] | None = Field(
        default=None,
        description="PERSISTENT_2: MB/s a TiB, 125 to 1000; absent: 125. Not for SCRATCH_2.",
    )
    bucket: BucketName | None = Field(
        default=None, description="S3 bucket behind it, your own; absent: one is made."
    )
    compression: Literal["LZ4", "NONE"] = Field(
        default="LZ4", description="Compression of what is stored."
    )
    backup_days: int = Field(
        default=0, ge=0, le=90, description="PERSISTENT_2: days a backup is kept; 0: none are made."
    )
    existing: FsxFileSystemConfig | None = Field(
        default=None, description="A file system of your own; absent: one is made."
    )
