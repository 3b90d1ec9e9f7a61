"""The node groups of an EKS cluster: an on-demand system group and GPU groups that may vanish.

All are managed: EKS picks the spot pools least likely to be interrupted, replaces a machine when a
rebalance is recommended, drains on best effort and repairs what is broken, so that no termination
handler of ours need run. Each has a launch template, for what a node group cannot say by itself:
encrypted disks, tags on machines and disks, and a metadata service that wants a token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from components.cluster import Placement
from components.cluster.eks_efa import Efa, EfaArgs
from components.cluster.eks_identity import Role, RoleArgs
from components.config import EksConfig, TolerationConfig
from components.part import Part

POOL, GPU, SYSTEM = "everstep/pool", "gpu-spot", "system"
CAPACITY, ON_DEMAND = "everstep/capacity", "on-demand"
SPOT_TAINT = "everstep/spot"
CSI_STARTUP_TAINT = "fsx.csi.aws.com/agent-not-ready"  # the driver takes it away once it can mount
# The autoscaler knows by it that a new node will have GPUs, and waits for these to be offered.
ACCELERATOR = "k8s.amazonaws.com/accelerator"
DESIRED_SIZE = "scalingConfig.desiredSize"

SYSTEM_AMI, GPU_AMI = "AL2023_x86_64_STANDARD", "AL2023_x86_64_NVIDIA"
ROOT_DISK = "/dev/xvda"  # of both images

GPU_PLACEMENT = Placement(
    selector={POOL: GPU},
    tolerations=[TolerationConfig(key=SPOT_TAINT, value="true", effect="NoSchedule")],
)
SYSTEM_PLACEMENT = Placement(selector={POOL: SYSTEM}, tolerations=[])


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One node group.

    Attributes:
        what: its name after the cluster's, and what the autoscaler knows it by.
        hops: how far an answer of the metadata service may travel: 1 reaches the node itself and
            pods in its network, 2 every pod.
        images: the AMI type.
        zones: those of its subnets.
        replaceable: whether a change that needs a new group may have both at once.
    """

    what: str
    images: str
    instance_types: Sequence[str]
    capacity: str
    zones: Sequence[str]
    minimum: int
    desired: int
    maximum: int
    disk_gib: int
    hops: int
    replaceable: bool
    labels: Mapping[str, str]
    taints: Sequence[aws.eks.NodeGroupTaintArgs] = field(default_factory=tuple)


@dataclass(frozen=True, kw_only=True)
class EksNodesArgs:
    """What to make.

    Attributes:
        config: the stack's `cluster` section.
        cluster: the control plane.
        node_security_group: that EKS made for the cluster.
        vpc_id: where the nodes are.
        subnets: zone -> private subnet.
        tags: of machines and disks, which no provider's default tags reach.
    """

    config: EksConfig
    cluster: aws.eks.Cluster
    node_security_group: pulumi.Input[str]
    vpc_id: pulumi.Input[str]
    subnets: Mapping[str, pulumi.Input[str]]
    tags: Mapping[str, str]


class EksNodes(Part):
    """All nodes of a cluster.

    Attributes:
        role_arn: of the role that all nodes have.
        system: the group whose nodes stay.
        gpu: the groups of GPU nodes, in order of preference.
    """

    role_arn: pulumi.Output[str]
    system: aws.eks.NodeGroup
    gpu: tuple[aws.eks.NodeGroup, ...]

    def __init__(
        self, name: str, args: EksNodesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksNodes", name, opts)
        self._args, self._config = args, args.config
        self._role = self._declare_role()
        self._efa = self._declare_efa() if args.config.gpu_pool.efa else None
        self.role_arn = self._role.arn
        self.system = self._group(system_pool(args.config))
        self.gpu = tuple(self._group(pool) for pool in gpu_pools(args.config))
        self.register_outputs({"roleArn": self.role_arn})

    def _declare_role(self) -> Role:
        """Declare what nodes may do: join, and pull images. The network plugin has its own role."""
        args = RoleArgs(
            physical=f"{self._config.name}-nodes",
            service="ec2.amazonaws.com",
            managed=["AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"],
        )
        return Role(f"{self.name}-role", args, self.child())

    def _declare_efa(self) -> Efa:
        args = EfaArgs(
            cluster=self._config.name,
            vpc_id=self._args.vpc_id,
            node_security_group=self._args.node_security_group,
            instance_type=self._config.gpu_pool.instance_types[0],
        )
        return Efa(f"{self.name}-efa", args, self.child())

    def _group(self, pool: Pool) -> aws.eks.NodeGroup:
        """Declare one node group."""
        named = f"{self._config.name}-{pool.what}"
        template = self._template(pool, named)
        efa = self._efa.ready if self._efa is not None and pool.images == GPU_AMI else ()
        return aws.eks.NodeGroup(
            f"{self.name}-{pool.what}",
            node_group_name=None if pool.replaceable else named,
            node_group_name_prefix=f"{named}-" if pool.replaceable else None,
            cluster_name=self._args.cluster.name,
            version=self._args.cluster.version,  # read back: nodes follow the control plane
            node_role_arn=self._role.arn,
            subnet_ids=[self._args.subnets[zone] for zone in pool.zones],
            ami_type=pool.images,
            capacity_type=pool.capacity,
            instance_types=list(pool.instance_types),
            scaling_config=aws.eks.NodeGroupScalingConfigArgs(
                min_size=pool.minimum, desired_size=pool.desired, max_size=pool.maximum
            ),
            labels=pool.labels,
            taints=list(pool.taints) or None,
            launch_template=aws.eks.NodeGroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            update_config=aws.eks.NodeGroupUpdateConfigArgs(max_unavailable=1),
            node_repair_config=aws.eks.NodeGroupNodeRepairConfigArgs(enabled=True),
            opts=self.child(
                after=[*self._role.rights, *efa],
                delete_before_replace=not pool.replaceable,
                ignore_changes=[DESIRED_SIZE] if self._config.autoscaling.enabled else [],
            ),
        )

    def _template(self, pool: Pool, named: str) -> aws.ec2.LaunchTemplate:
        """Declare how a group's machines are launched."""
        efa = self._efa if pool.images == GPU_AMI else None
        return aws.ec2.LaunchTemplate(
            f"{self.name}-{pool.what}-template",
            name=named,
            update_default_version=True,
            block_device_mappings=[_disk(pool.disk_gib)],
            metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled",
                http_tokens="required",
                http_put_response_hop_limit=pool.hops,
            ),
            tag_specifications=[
                aws.ec2.LaunchTemplateTagSpecificationArgs(
                    resource_type=kind, tags={**self._args.tags, "Name": named}
                )
                for kind in ("instance", "volume", "network-interface")
            ],
            network_interfaces=efa.interfaces if efa else None,
            placement=efa.placement if efa else None,
            user_data=efa.user_data if efa else None,
            opts=self.child(delete_before_replace=True),
        )


def system_pool(config: EksConfig) -> Pool:
    """Give the group of nodes that stay, in all zones; pods there need no metadata service."""
    said = config.system_pool
    return Pool(
        what=SYSTEM,
        images=SYSTEM_AMI,
        instance_types=said.instance_types,
        capacity="ON_DEMAND",
        zones=config.zones,
        minimum=said.nodes,
        desired=said.nodes,
        maximum=said.max_nodes,
        disk_gib=said.disk_gib,
        hops=1,
        replaceable=True,  # etcd and the controller move over before the old nodes go
        labels={POOL: SYSTEM},
    )


def gpu_pools(config: EksConfig) -> list[Pool]:
    """Give the groups of GPU nodes, the preferred one first."""
    said = config.gpu_pool
    spot = said.capacity == "spot"
    first = _gpu_pool(
        config,
        what=GPU if spot else f"gpu-{ON_DEMAND}",
        spot=spot,
        sizes=(said.min_nodes, said.nodes, said.max_nodes),
    )
    if not (spot and said.fallback_nodes):
        return [first]
    sizes = (0, 0, said.fallback_nodes)
    return [first, _gpu_pool(config, what=f"gpu-{ON_DEMAND}", spot=False, sizes=sizes)]


def _gpu_pool(config: EksConfig, *, what: str, spot: bool, sizes: tuple[int, int, int]) -> Pool:
    """Give one group of GPU nodes, in the one zone of the file system."""
    minimum, desired, maximum = sizes
    labels = {POOL: GPU, ACCELERATOR: "nvidia"}
    return Pool(
        what=what,
        images=GPU_AMI,
        instance_types=config.gpu_pool.instance_types,
        capacity="SPOT" if spot else "ON_DEMAND",
        zones=[config.gpu_zone],
        minimum=minimum,
        desired=desired,
        maximum=maximum,
        disk_gib=config.gpu_pool.disk_gib,
        hops=2,  # workers hear of their interruption from the metadata service
        replaceable=False,  # two groups at once would need twice the quota of GPUs
        labels=labels if spot else {**labels, CAPACITY: ON_DEMAND},
        taints=[
            aws.eks.NodeGroupTaintArgs(key=SPOT_TAINT, value="true", effect="NO_SCHEDULE"),
            aws.eks.NodeGroupTaintArgs(key=CSI_STARTUP_TAINT, effect="NO_EXECUTE"),
        ],
    )


def _disk(size_gib: int) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
    """Give a node's encrypted disk, which goes with the node."""
    return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=ROOT_DISK,
        ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_size=size_gib,
            volume_type="gp3",
            encrypted="true",
            delete_on_termination="true",
        ),
    )
