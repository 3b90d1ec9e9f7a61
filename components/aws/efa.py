"""The Elastic Fabric Adapter (EFA): network interfaces that bypass the kernel.

One launch template serves one instance type, since the interfaces follow its network cards. The
instances are in a cluster placement group and accept all traffic from each other: the protocol of EFA
has no ports that a rule could name. All of this makes spot capacity rarer, so EFA is off by default.
Reserved instances are not in a placement group, since EC2 has already placed them: it finds no capacity in a group in
which the reservation was not made (terraform-aws-eks #3730, eksctl #7949).
"""

from dataclasses import dataclass

import pulumi
from cloudfacts.aws import INSTANCE_TYPES
from pulumi_aws import ec2, vpc

from components.aws.user_data import shell_script
from components.component import Component

ALL_PROTOCOLS = "-1"
HUGE_PAGES = 5128  # pages of 2 MiB for libfabric's bounce buffers, as on AWS images
ETHERNET_FIRST_TYPES = frozenset({"p6-b300.48xlarge"})  # types whose first network card has no EFA


@dataclass(frozen=True, kw_only=True)
class EfaArgs:
    """Arguments of an Efa.

    Attributes:
        cluster: prefix of all names: name of the EKS cluster, with `cluster.gpuPools` followed by the zone.
        vpc_id: VPC of the nodes.
        node_security_group: security group of the cluster, which an interface with explicit groups does not get
            automatically.
        instance_type: an instance type that has EFA.
        placed: whether instances without a reservation need a placement group.
    """

    cluster: str
    vpc_id: pulumi.Input[str]
    node_security_group: pulumi.Input[str]
    instance_type: str
    placed: bool


class Efa(Component):
    """The resources and settings that a launch template needs for EFA.

    Attributes:
        interfaces: network interfaces of the launch template.
        placement: placement of the launch template of instances without a reservation; None if all are reserved.
        user_data: part of the user data that reserves huge pages before the kubelet counts them.
        prerequisites: rules that must exist before the nodes and until the nodes are deleted.
    """

    interfaces: list[ec2.LaunchTemplateNetworkInterfaceArgs]
    placement: ec2.LaunchTemplatePlacementArgs | None
    user_data: str
    prerequisites: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: EfaArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:Efa", name, opts)
        group = ec2.SecurityGroup(
            f"{name}-group",
            name=f"{args.cluster}-efa",
            description="EFA traffic among GPU nodes",
            vpc_id=args.vpc_id,
            revoke_rules_on_delete=True,
            tags={"Name": f"{args.cluster}-efa"},
            opts=self.child(delete_before_replace=True),
        )
        groups = [args.node_security_group, group.id]
        self.interfaces = [
            ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=interface.card_index,
                device_index=interface.device,
                interface_type=interface.type,
                security_groups=groups,
                delete_on_termination="true",
            )
            for interface in efa_interfaces(args.instance_type)
        ]
        self.placement = self._declare_placement(args.cluster) if args.placed else None
        self.user_data = shell_script(HUGE_PAGES_SCRIPT)
        self.prerequisites = self._rules(group)
        self.register_outputs({"group": group.id})

    def _declare_placement(self, prefix: str) -> ec2.LaunchTemplatePlacementArgs:
        """Declare the placement group and return the placement in it."""
        group = ec2.PlacementGroup(
            f"{self.name}-together",
            name=f"{prefix}-gpu",
            strategy="cluster",
            opts=self.child(delete_before_replace=True),
        )
        return ec2.LaunchTemplatePlacementArgs(group_name=group.name)

    def _rules(self, group: ec2.SecurityGroup) -> tuple[pulumi.Resource, ...]:
        """Allow all traffic among the members, in both directions: EFA requires both."""
        return (
            vpc.SecurityGroupIngressRule(
                f"{self.name}-in",
                security_group_id=group.id,
                referenced_security_group_id=group.id,
                ip_protocol=ALL_PROTOCOLS,
                description="EFA from the other GPU nodes",
                opts=self.child(),
            ),
            vpc.SecurityGroupEgressRule(
                f"{self.name}-out",
                security_group_id=group.id,
                referenced_security_group_id=group.id,
                ip_protocol=ALL_PROTOCOLS,
                description="EFA to the other GPU nodes",
                opts=self.child(),
            ),
        )


@dataclass(frozen=True, kw_only=True)
class NetworkInterface:
    """The network interface on one network card.

    Attributes:
        card_index: index of the network card in EC2.
        device: device index of the interface on its card.
        type: interface type of EC2, such as efa-only.
    """

    card_index: int
    device: int
    type: str


def efa_interfaces(instance_type: str) -> list[NetworkInterface]:
    """Return the network interfaces of an instance type with EFA, the first with an IP address.

    Raises:
        ValueError: the type has no EFA, which the rules of the configuration refuse earlier.
    """
    count = INSTANCE_TYPES[instance_type].efa_interfaces if instance_type in INSTANCE_TYPES else 0
    if not count:
        raise ValueError(f"{instance_type} has no EFA")
    ethernet_first = instance_type in ETHERNET_FIRST_TYPES
    first = NetworkInterface(card_index=0, device=0, type="interface" if ethernet_first else "efa")
    others = range(1, count + 1 if ethernet_first else count)
    return [
        first,
        *(NetworkInterface(card_index=index, device=1, type="efa-only") for index in others),
    ]


HUGE_PAGES_SCRIPT = f"""\
#!/bin/sh
echo vm.nr_hugepages={HUGE_PAGES} > /etc/sysctl.d/90-efa.conf
sysctl --load=/etc/sysctl.d/90-efa.conf
"""
