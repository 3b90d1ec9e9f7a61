"""The Elastic Fabric Adapter: interfaces by which GPUs of several machines speak past the kernel.

One launch template serves one instance type, since the interfaces follow its network cards; the
machines stand close together (a cluster placement group) and let everything through among
themselves, as EFA's own protocol has no ports that a rule could name. All of it costs chances on the
spot market, so that it is off unless asked for.
"""

from base64 import b64encode
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.config.catalog import AWS_GPUS
from components.part import Part

ALL_PROTOCOLS = "-1"
HUGE_PAGES = 5128  # of 2 MiB: what AWS sets aside for libfabric's bounce buffers on its own images
ONLY_ETHERNET_FIRST = frozenset({"p6-b300.48xlarge"})  # its first card has no EFA, the rest have


@dataclass(frozen=True, kw_only=True)
class EfaArgs:
    """What to make.

    Attributes:
        cluster: name of the EKS cluster.
        vpc_id: where the nodes are.
        node_security_group: of the cluster; an interface that names groups gets no other.
        instance_type: the one type, which has EFA.
    """

    cluster: str
    vpc_id: pulumi.Input[str]
    node_security_group: pulumi.Input[str]
    instance_type: str


class Efa(Part):
    """What a launch template needs for EFA.

    Attributes:
        interfaces: of the launch template.
        placement: of the launch template.
        user_data: base64; sets huge pages aside before the kubelet counts them.
        ready: what nodes need besides, and must be gone before it is.
    """

    interfaces: list[aws.ec2.LaunchTemplateNetworkInterfaceArgs]
    placement: aws.ec2.LaunchTemplatePlacementArgs
    user_data: str
    ready: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: EfaArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("cluster:Efa", name, opts)
        group = aws.ec2.SecurityGroup(
            f"{name}-group",
            name=f"{args.cluster}-efa",
            description="EFA traffic among GPU nodes",
            vpc_id=args.vpc_id,
            revoke_rules_on_delete=True,
            tags={"Name": f"{args.cluster}-efa"},
            opts=self.child(delete_before_replace=True),
        )
        together = aws.ec2.PlacementGroup(
            f"{name}-together",
            name=f"{args.cluster}-gpu",
            strategy="cluster",
            opts=self.child(delete_before_replace=True),
        )
        groups = [args.node_security_group, group.id]
        self.interfaces = [
            aws.ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=card.index,
                device_index=card.device,
                interface_type=card.type,
                security_groups=groups,
                delete_on_termination="true",
            )
            for card in cards(args.instance_type)
        ]
        self.placement = aws.ec2.LaunchTemplatePlacementArgs(group_name=together.name)
        self.user_data = b64encode(HUGE_PAGES_SCRIPT.encode()).decode()
        self.ready = self._rules(group)
        self.register_outputs({"group": group.id})

    def _rules(self, group: aws.ec2.SecurityGroup) -> tuple[pulumi.Resource, ...]:
        """Let everything through among the members, both ways: EFA asks for both."""
        return (
            aws.vpc.SecurityGroupIngressRule(
                f"{self.name}-in",
                security_group_id=group.id,
                referenced_security_group_id=group.id,
                ip_protocol=ALL_PROTOCOLS,
                description="EFA from the other GPU nodes",
                opts=self.child(),
            ),
            aws.vpc.SecurityGroupEgressRule(
                f"{self.name}-out",
                security_group_id=group.id,
                referenced_security_group_id=group.id,
                ip_protocol=ALL_PROTOCOLS,
                description="EFA to the other GPU nodes",
                opts=self.child(),
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Card:
    """The interface on one network card, as EC2 numbers them."""

    index: int
    device: int
    type: str


def cards(instance_type: str) -> list[Card]:
    """Give the interfaces that use all EFA of an instance type, the first with an address.

    Raises:
        ValueError: the type has no EFA, which the rules of the configuration refuse earlier.
    """
    count = AWS_GPUS[instance_type].efa if instance_type in AWS_GPUS else 0
    if not count:
        raise ValueError(f"{instance_type} has no EFA")
    ethernet_first = instance_type in ONLY_ETHERNET_FIRST
    first = Card(index=0, device=0, type="interface" if ethernet_first else "efa")
    others = range(1, count + 1 if ethernet_first else count)
    return [first, *(Card(index=index, device=1, type="efa-only") for index in others)]


# A managed node group joins this to its own user data, which is why it is MIME.
HUGE_PAGES_SCRIPT = f"""\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="everstep"

--everstep
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/sh
echo vm.nr_hugepages={HUGE_PAGES} > /etc/sysctl.d/90-efa.conf
sysctl --load=/etc/sysctl.d/90-efa.conf
--everstep--
"""
