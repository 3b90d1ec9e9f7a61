"""The resource group and the network of an AKS cluster: made, or the user's own.

One subnet holds all nodes; pods and Services have addresses of their own (Azure CNI overlay), so
that a small block goes a long way. The nodes have no public addresses and leave through a NAT
gateway: the default of AKS, a load balancer, runs out of ports when many nodes pull large images,
and Azure's own default way out has ended. The subnet has a service endpoint for storage, which both
keeps the training's traffic off the gateway, where it would be paid for by the gigabyte, and lets
the storage account refuse everybody else.
"""

from dataclasses import dataclass

import pulumi
from pulumi_azure_native import network, resources

from components.cluster.aks_names import group_name
from components.config import AksConfig
from components.part import Part

STORAGE_SERVICE = "Microsoft.Storage"


@dataclass(frozen=True, kw_only=True)
class VnetArgs:
    """What to make, and what is there already.

    Attributes:
        config: the stack's `cluster` section.
        stack: the stack's name.
        tags: of all that takes tags.
        protect: whether the group, in which the data lies, refuses to be deleted.
    """

    config: AksConfig
    stack: str
    tags: dict[str, str]
    protect: bool = False


class Vnet(Part):
    """A resource group with a subnet for nodes and one way out of it.

    Attributes:
        group: the resource group's name.
        group_id: its id.
        subnet_id: the id of the subnet.
        egress: the address as which nodes appear outside; None in a subnet of the user's.
        ready: what must be there before nodes are, and outlive them.
    """

    group: pulumi.Output[str]
    group_id: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    egress: pulumi.Output[str] | None = None
    ready: tuple[pulumi.Resource, ...] = ()

    def __init__(
        self, name: str, args: VnetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("network:Vnet", name, opts)
        self._args = args
        if args.config.resource_group is None:
            self._make_group()
        else:
            self._find_group(args.config.resource_group)
        if args.config.network.subnet_id is None:
            self._make_subnet()
        else:
            self.subnet_id = pulumi.Output.from_input(args.config.network.subnet_id)
        self.register_outputs({"group": self.group, "subnetId": self.subnet_id})

    def _make_group(self) -> None:
        """Declare the group that holds all of the stack but the nodes, which AKS keeps apart."""
        made = resources.ResourceGroup(
            f"{self.name}-group",
            resource_group_name=group_name(self._args.config.name, self._args.stack),
            location=self._args.config.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True, protect=self._args.protect),
        )
        self.group, self.group_id = made.name, made.id

    def _find_group(self, named: str) -> None:
        """Look up the user's group."""
        found = resources.get_resource_group_output(
            resource_group_name=named, opts=pulumi.InvokeOutputOptions(parent=self)
        )
        self.group, self.group_id = found.name, found.id

    def _make_subnet(self) -> None:
        """Declare a network with one subnet, and its way out."""
        address, gateway = self._gateway()
        around = network.VirtualNetwork(
            f"{self.name}-network",
            virtual_network_name=f"{self._args.config.name}-network",
            resource_group_name=self.group,
            location=self._args.config.location,
            address_space=network.AddressSpaceArgs(
                address_prefixes=[self._args.config.network.cidr]
            ),
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
        subnet = network.Subnet(
            f"{self.name}-subnet",
            subnet_name="nodes",
            resource_group_name=self.group,
            virtual_network_name=around.name,
            address_prefix=self._args.config.network.cidr,
            nat_gateway=network.SubResourceArgs(id=gateway.id),
            default_outbound_access=False,
            service_endpoints=[
                network.ServiceEndpointPropertiesFormatArgs(service=STORAGE_SERVICE)
            ],
            opts=self.child(delete_before_replace=True),
        )
        self.subnet_id, self.egress = subnet.id, address
        self.ready = (subnet,)

    def _gateway(self) -> tuple[pulumi.Output[str], network.NatGateway]:
        """Declare the way out; give its public address, and itself."""
        address = network.PublicIPAddress(
            f"{self.name}-egress",
            public_ip_address_name=f"{self._args.config.name}-egress",
            resource_group_name=self.group,
            location=self._args.config.location,
            sku=network.PublicIPAddressSkuArgs(name="Standard"),  # the only one a gateway takes
            public_ip_allocation_method="Static",
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
        gateway = network.NatGateway(
            f"{self.name}-gateway",
            nat_gateway_name=f"{self._args.config.name}-gateway",
            resource_group_name=self.group,
            location=self._args.config.location,
            sku=network.NatGatewaySkuArgs(name="Standard"),
            public_ip_addresses=[network.SubResourceArgs(id=address.id)],
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
        return address.ip_address.apply(lambda said: said or ""), gateway
