"""The node groups of an EKS cluster: an on-demand system group and GPU groups, usually on spot.

All groups are managed: EKS chooses the spot capacity that is least likely to be interrupted, replaces an instance on
a rebalance recommendation, drains it on a best-effort basis and repairs broken nodes. No further termination handler
is needed. Each group has a launch template for settings that a node group lacks: encrypted disks, tags of instances
and disks, and a metadata service that requires a token.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pulumi
from cloudfacts.aws import INSTANCE_TYPES
from pulumi_aws import autoscaling, ec2, eks

from components.aws.autoscaler_policies import scaling_group_name
from components.aws.efa import HUGE_PAGES, Efa, EfaArgs
from components.aws.identity import Role, RoleArgs
from components.aws.user_data import LOCAL_STORAGE, encoded, registration_taints
from components.component import Component
from components.config import EksConfig, EksPool, TolerationConfig
from components.config.eks import FALLBACK_SUFFIX, EksGpuPoolConfig
from components.interface import Placement
from everstep.catalog.names import (
    CAPACITY_LABEL,
    EFA_RESOURCE,
    GPU_POOL,
    GPU_POOL_LABEL,
    ON_DEMAND,
    POOL_LABEL,
    SPOT_TAINT_KEY,
    SPOT_TAINT_VALUE,
    SYSTEM_POOL,
)

EFA = "efa"
# Key of a taint that the FSx driver removes once it can mount. The driver looks for it only once, when it starts. Thus
# the kubelet has to register the node with it: a taint that EKS applies to a running node could stay.
CSI_STARTUP_TAINT = "fsx.csi.aws.com/agent-not-ready"
# With this label the autoscaler expects GPUs on a new node and waits until they are allocatable.
ACCELERATOR_LABEL = "k8s.amazonaws.com/accelerator"
DESIRED_SIZE = "scalingConfig.desiredSize"
# Prefix of an Auto Scaling group's tags from which the autoscaler reads the resources of new nodes.
RESOURCE_TAG = "k8s.io/cluster-autoscaler/node-template/resources/"

# Effect of a taint in the API of EKS -> the same effect in Kubernetes.
EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute"}
SYSTEM_AMI, GPU_AMI = "AL2023_x86_64_STANDARD", "AL2023_x86_64_NVIDIA"
ROOT_DISK = "/dev/xvda"  # root device of both images
CAPACITY_BLOCK = "CAPACITY_BLOCK"
CREATE_TIMEOUT = "60m"  # capacity of a rare instance type may take longer than the default

GPU_PLACEMENT = Placement(
    selector={POOL_LABEL: GPU_POOL},
    tolerations=[TolerationConfig(key=SPOT_TAINT_KEY, value=SPOT_TAINT_VALUE, effect="NoSchedule")],
)
SYSTEM_PLACEMENT = Placement(selector={POOL_LABEL: SYSTEM_POOL}, tolerations=[])


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """The settings of one node group.

    Attributes:
        name: part of the group's name after the cluster's name; the autoscaler's priorities match it.
        ami_type: AMI type, such as AL2023_x86_64_NVIDIA.
        instance_types: instance types, in order of preference.
        capacity: SPOT, ON_DEMAND or CAPACITY_BLOCK.
        zones: availability zones.
        min_size: minimum number of nodes.
        desired_size: initial number of nodes, changed by the autoscaler.
        max_size: maximum number of nodes.
        disk_gib: size of the root disk, in GiB.
        create_before_delete: whether a replacement is created before the old group is deleted.
        labels: labels of the nodes.
        taints: taints that EKS keeps on the nodes.
        startup_taints: taints of a new node until an agent removes them, such as `key:NoExecute`.
        efa: name of the EFA resources that its nodes share; empty without EFA.
        local_storage: whether volumes of pods are on the NVMe disks of the instance.
        reservation: id of the capacity reservation that all nodes use; empty without one.
    """

    name: str
    ami_type: str
    instance_types: Sequence[str]
    capacity: str
    zones: Sequence[str]
    min_size: pulumi.Input[int]
    desired_size: pulumi.Input[int]
    max_size: pulumi.Input[int]
    disk_gib: pulumi.Input[int]
    create_before_delete: bool
    labels: Mapping[str, str]
    taints: Sequence[eks.NodeGroupTaintArgs] = field(default_factory=tuple)
    startup_taints: Sequence[str] = ()
    efa: str = ""
    local_storage: bool = False
    reservation: str = ""


@dataclass(frozen=True, kw_only=True)
class EksNodeGroupsArgs:
    """Arguments of EksNodeGroups.

    Attributes:
        cluster: name of the cluster, prefix of all names.
        cluster_name: the same name as an output of the cluster, so that nodes depend on it.
        kubernetes_version: version of the control plane, as an output of the cluster.
        node_security_group: security group that EKS created for the cluster.
        vpc_id: VPC of the nodes.
        subnet_ids: zone -> private subnet.
        system_pool: settings of the system group.
        gpu_pools: settings of the GPU groups, in order of preference.
        autoscaling: whether an autoscaler changes the sizes.
        user_data: parts of the user data of all nodes.
        tags: tags of instances, disks and network interfaces, to which the provider's default tags do not apply.
        kms_key_arn: existing key for the disks; None: the default key of EBS.
        release: release of the AMIs, such as 1.36.0-20261101; None: the newest one, chosen by EKS.
    """

    cluster: str
    cluster_name: pulumi.Input[str]
    kubernetes_version: pulumi.Input[str]
    node_security_group: pulumi.Input[str]
    vpc_id: pulumi.Input[str]
    subnet_ids: Mapping[str, pulumi.Input[str]]
    system_pool: NodePool
    gpu_pools: Sequence[NodePool]
    autoscaling: bool
    tags: Mapping[str, str]
    user_data: Sequence[str] = ()
    kms_key_arn: pulumi.Input[str] | None = None
    release: str | None = None


class EksNodeGroups(Component):
    """All nodes of a cluster.

    Attributes:
        role_arn: ARN of the role of all nodes.
        system: group of nodes that are never interrupted.
        gpu: groups of GPU nodes, in order of preference.
    """

    role_arn: pulumi.Output[str]
    system: eks.NodeGroup
    gpu: tuple[eks.NodeGroup, ...]

    def __init__(
        self, name: str, args: EksNodeGroupsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:EksNodes", name, opts)
        self._args = args
        self._role = self._declare_role()
        self._efa = self._declare_efa()
        self.role_arn = self._role.arn
        self.system = self._group(args.system_pool)
        self.gpu = tuple(self._group(pool) for pool in args.gpu_pools)
        self.register_outputs({"roleArn": self.role_arn})

    def _declare_role(self) -> Role:
        """Declare the role with which nodes join and pull images; the network plugin has its own role."""
        args = RoleArgs(
            role_name=f"{self._args.cluster}-nodes",
            service="ec2.amazonaws.com",
            managed_policies=["AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"],
        )
        return Role(f"{self.name}-role", args, self.child())

    def _declare_efa(self) -> dict[str, Efa]:
        """Declare the EFA resources and return them by name: one set per zone, because placement groups are zonal."""
        types = {pool.efa: pool.instance_types[0] for pool in self._args.gpu_pools if pool.efa}
        return {
            name: self._declare_zone_efa(name, instance_type)
            for name, instance_type in types.items()
        }

    def _declare_zone_efa(self, name: str, instance_type: str) -> Efa:
        args = EfaArgs(
            cluster=f"{self._args.cluster}-{name}".removesuffix(f"-{EFA}"),
            vpc_id=self._args.vpc_id,
            node_security_group=self._args.node_security_group,
            instance_type=instance_type,
            placed=any(p.efa == name and not p.reservation for p in self._args.gpu_pools),
        )
        return Efa(f"{self.name}-{name}", args, self.child())

    def _group(self, pool: NodePool) -> eks.NodeGroup:
        """Declare a node group."""
        group_name = f"{self._args.cluster}-{pool.name}"
        template = self._template(pool, group_name)
        efa = self._efa.get(pool.efa)
        group = eks.NodeGroup(
            f"{self.name}-{pool.name}",
            node_group_name=None if pool.create_before_delete else group_name,
            node_group_name_prefix=f"{group_name}-" if pool.create_before_delete else None,
            cluster_name=self._args.cluster_name,
            version=self._args.kubernetes_version,  # nodes follow the control plane
            release_version=self._args.release,
            node_role_arn=self._role.arn,
            subnet_ids=[self._args.subnet_ids[zone] for zone in pool.zones],
            ami_type=pool.ami_type,
            capacity_type=pool.capacity,
            # With a reservation, the launch template names the instance type; EKS refuses it in both places.
            instance_types=None if pool.reservation else list(pool.instance_types),
            scaling_config=eks.NodeGroupScalingConfigArgs(
                min_size=pool.min_size, desired_size=pool.desired_size, max_size=pool.max_size
            ),
            labels=pool.labels,
            taints=list(pool.taints) or None,
            launch_template=eks.NodeGroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            update_config=eks.NodeGroupUpdateConfigArgs(max_unavailable=1),
            node_repair_config=eks.NodeGroupNodeRepairConfigArgs(enabled=True),
            opts=self.child(
                depends_on=[*self._role.policies, *(efa.prerequisites if efa else ())],
                delete_before_replace=not pool.create_before_delete,
                ignore_changes=[DESIRED_SIZE] if self._args.autoscaling else [],
                timeout=CREATE_TIMEOUT,
            ),
        )
        if efa and self._args.autoscaling:
            self._tag_resources(pool, group)
        return group

    def _tag_resources(self, pool: NodePool, group: eks.NodeGroup) -> None:
        """Tag the Auto Scaling group with the resources of EFA, which the instance type does not imply.

        Without these tags, the autoscaler assumes that a new node cannot run a worker, and never scales a
        group up from zero.
        """
        resources = {
            "efa": (EFA_RESOURCE, str(INSTANCE_TYPES[pool.instance_types[0]].efa_interfaces)),
            "huge-pages": ("hugepages-2Mi", f"{2 * HUGE_PAGES}Mi"),
        }
        for key, (resource, quantity) in resources.items():
            autoscaling.Tag(
                f"{self.name}-{pool.name}-{key}",
                autoscaling_group_name=group.resources.apply(scaling_group_name),
                tag=autoscaling.TagTagArgs(
                    key=f"{RESOURCE_TAG}{resource}", value=quantity, propagate_at_launch=False
                ),
                opts=self.child(delete_before_replace=True),
            )

    def _template(self, pool: NodePool, group_name: str) -> ec2.LaunchTemplate:
        """Declare the launch template of a group."""
        efa = self._efa.get(pool.efa)
        parts = [*self._args.user_data, *([efa.user_data] if efa else []), *_node_configs(pool)]
        return ec2.LaunchTemplate(
            f"{self.name}-{pool.name}-template",
            name=group_name,
            update_default_version=True,
            block_device_mappings=[_disk(pool.disk_gib, self._args.kms_key_arn)],
            metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled",
                http_tokens="required",
                http_put_response_hop_limit=1,  # reachable only from the node and from pods in its host network
            ),
            tag_specifications=[
                ec2.LaunchTemplateTagSpecificationArgs(
                    resource_type=kind, tags={**self._args.tags, "Name": group_name}
                )
                for kind in ("instance", "volume", "network-interface")
            ],
            network_interfaces=efa.interfaces if efa else None,
            placement=efa.placement if efa and not pool.reservation else None,
            user_data=encoded(parts),
            instance_type=pool.instance_types[0] if pool.reservation else None,
            capacity_reservation_specification=_reservation(pool),
            instance_market_options=_market(pool),
            opts=self.child(delete_before_replace=True),
        )


def system_pool(config: EksConfig) -> NodePool:
    """Return the settings of the system group, whose nodes may be in any zone."""
    pool = config.system_pool
    return NodePool(
        name=SYSTEM_POOL,
        ami_type=SYSTEM_AMI,
        instance_types=pool.instance_types,
        capacity="ON_DEMAND",
        zones=config.zones,
        min_size=pool.nodes,
        desired_size=pool.nodes,
        max_size=pool.max_nodes,
        disk_gib=pool.disk_gib,
        create_before_delete=True,  # etcd and the controller move before the old nodes are deleted
        labels={POOL_LABEL: SYSTEM_POOL},
    )


def gpu_pools(config: EksConfig, *, local_storage: bool = False) -> list[NodePool]:
    """Return the settings of the GPU groups, in order of preference; fallbacks are last.

    Args:
        config: the `cluster` section of a stack.
        local_storage: whether volumes of pods are on the NVMe disks of the instance.
    """
    fallbacks = [pool for pool in config.pools if pool.settings.fallback_nodes]
    pools = [*map(_gpu_group, config.pools), *map(_fallback_group, fallbacks)]
    return [replace(pool, local_storage=local_storage) for pool in pools]


def _gpu_group(pool: EksPool) -> NodePool:
    """Return the settings of a GPU pool's node group."""
    settings, spot = pool.settings, pool.settings.capacity == "spot"
    reservation = settings.reservation
    labels = {POOL_LABEL: GPU_POOL, ACCELERATOR_LABEL: "nvidia"}
    if pool.name:
        labels[GPU_POOL_LABEL] = pool.name
    return NodePool(
        name=_group_name(pool, spot=spot),
        ami_type=GPU_AMI,
        instance_types=settings.instance_types,
        capacity=_capacity_type(settings),
        zones=[pool.zone],
        min_size=settings.min_nodes,
        desired_size=settings.nodes,
        max_size=settings.max_nodes,
        disk_gib=settings.disk_gib,
        create_before_delete=False,  # two groups at the same time would need twice the quota of GPUs
        labels=labels if spot else {**labels, CAPACITY_LABEL: ON_DEMAND},
        taints=[
            eks.NodeGroupTaintArgs(
                key=SPOT_TAINT_KEY, value=SPOT_TAINT_VALUE, effect="NO_SCHEDULE"
            ),
        ],
        startup_taints=[f"{CSI_STARTUP_TAINT}:NoExecute"],
        efa=_efa_name(pool),
        reservation=reservation.id if reservation else "",
    )


def _capacity_type(settings: EksGpuPoolConfig) -> str:
    """Return the EKS capacity type of a pool's node group."""
    if settings.capacity == "spot":
        return "SPOT"
    reservation = settings.reservation
    return CAPACITY_BLOCK if reservation and reservation.capacity_block else "ON_DEMAND"


def _fallback_group(pool: EksPool) -> NodePool:
    """Return the settings of the on-demand fallback group of a spot pool, initially without nodes."""
    spot = _gpu_group(pool)
    return replace(
        spot,
        name=f"gpu-{pool.name}{FALLBACK_SUFFIX}" if pool.name else f"gpu-{ON_DEMAND}",
        capacity="ON_DEMAND",
        labels={**spot.labels, CAPACITY_LABEL: ON_DEMAND},
        min_size=0,
        desired_size=0,
        max_size=pool.settings.fallback_nodes,
    )


def _group_name(pool: EksPool, *, spot: bool) -> str:
    """Return the name of a pool's group, without the cluster's name."""
    if pool.name:
        return f"gpu-{pool.name}"
    return GPU_POOL if spot else f"gpu-{ON_DEMAND}"


def _efa_name(pool: EksPool) -> str:
    """Return the name of the EFA resources of a pool, which contains the zone with `cluster.gpuPools`."""
    if not pool.settings.efa:
        return ""
    return f"{pool.zone}-{EFA}" if pool.name else EFA


def _node_configs(pool: NodePool) -> list[str]:
    """Return the parts of a group's user data that configure `nodeadm`."""
    parts = [LOCAL_STORAGE] if pool.local_storage else []
    if not pool.startup_taints:
        return parts
    taints = [f"{taint.key}={taint.value}:{EFFECTS[str(taint.effect)]}" for taint in pool.taints]
    return [*parts, registration_taints([*taints, *pool.startup_taints])]


def _reservation(
    pool: NodePool,
) -> ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    """Return the capacity reservation in which a group's instances start; None without one."""
    if not pool.reservation:
        return None
    return ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_target=ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
            capacity_reservation_id=pool.reservation
        )
    )


def _market(pool: NodePool) -> ec2.LaunchTemplateInstanceMarketOptionsArgs | None:
    """Return the market options of a Capacity Block; None for other capacity types.

    EKS User Guide, "Create a managed node group with Capacity Blocks for ML", 2026-11: the market type, the reservation
    and the capacity type are all required.
    """
    if pool.capacity != CAPACITY_BLOCK:
        return None
    return ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")


def _disk(
    size_gib: pulumi.Input[int], kms_key_arn: pulumi.Input[str] | None
) -> ec2.LaunchTemplateBlockDeviceMappingArgs:
    """Return the encrypted root disk of a node, deleted with the node."""
    return ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=ROOT_DISK,
        ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_size=size_gib,
            volume_type="gp3",
            encrypted="true",
            kms_key_id=kms_key_arn,
            delete_on_termination="true",
        ),
    )
