"""The resource group and the network of an AKS cluster: created, or existing ones.

One subnet contains all nodes; pods have addresses of an overlay and Services virtual addresses, so a
small block suffices. The nodes have no public addresses and reach the internet through a NAT gateway. The default
of AKS, a load balancer, runs out of ports when many nodes pull large images, and Azure has retired its
default outbound access. A service endpoint for storage keeps the traffic of the job off the
gateway, which is billed by the gigabyte, and lets the storage account refuse all other networks.

With the address of a firewall, a route table replaces the NAT gateway and its public address, as in a spoke of a
hub-and-spoke network. AKS then refuses a cluster whose subnet has no route table with a default route.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import network, resources

from components.azure.names import group_name
from components.component import Component

STORAGE_SERVICE = "Microsoft.Storage"


@dataclass(frozen=True, kw_only=True)
class VnetArgs:
    """Arguments of a Vnet.

    Attributes:
        name: name of the cluster, prefix of all names.
        stack: name of the stack, part of the name of a new resource group.
        location: Azure region.
        cidr: addresses of a new subnet.
        resource_group: name of an existing resource group; None: a new one is created.
        subnet_id: id of an existing subnet; None: a new one is created.
        firewall_ip: address of the firewall to which a new subnet sends all egress; None: a NAT gateway.
        tags: tags of all resources that support them.
        protect: whether Pulumi refuses to delete the group, which contains the data.
    """

    name: str
    stack: str
    location: str
    cidr: pulumi.Input[str]
    tags: Mapping[str, str]
    resource_group: pulumi.Input[str] | None = None
    subnet_id: pulumi.Input[str] | None = None
    firewall_ip: str | None = None
    protect: bool = False


class Vnet(Component):
    """A resource group with a subnet for nodes and its egress route.

    Attributes:
        group: name of the resource group.
        group_id: id of the resource group.
        subnet_id: id of the subnet.
        egress: public address of the NAT gateway; None for an existing subnet or a firewall.
        prerequisites: resources that nodes need from their start to their deletion.
    """

    group: pulumi.Output[str]
    group_id: pulumi.Output[str]
    subnet_id: pulumi.Output[str]
    egress: pulumi.Output[str] | None = None
    prerequisites: tuple[pulumi.Resource, ...] = ()

    def __init__(
        self, name: str, args: VnetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("network:Vnet", name, opts)
        self._args = args
        if args.resource_group is None:
            self._create_group()
        else:
            self._use_group(args.resource_group)
        if args.subnet_id is None:
            self._create_subnet()
        else:
            self.subnet_id = pulumi.Output.from_input(args.subnet_id)
        self.register_outputs({"group": self.group, "subnetId": self.subnet_id})

    def _create_group(self) -> None:
        """Declare the group of all resources except the nodes, which AKS creates in another group."""
        group = resources.ResourceGroup(
            f"{self.name}-group",
            resource_group_name=group_name(self._args.name, self._args.stack),
            location=self._args.location,
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True, protect=self._args.protect),
        )
        self.group, self.group_id = group.name, group.id

    def _use_group(self, name: pulumi.Input[str]) -> None:
        """Look up an existing group."""
        group = resources.get_resource_group_output(
            resource_group_name=name, opts=pulumi.InvokeOutputOptions(parent=self)
        )
        self.group, self.group_id = group.name, group.id

    def _create_subnet(self) -> None:
        """Declare a network with one subnet and its egress route."""
        gateway, routes = self._egress_route()
        vnet = network.VirtualNetwork(
            f"{self.name}-network",
            virtual_network_name=f"{self._args.name}-network",
            resource_group_name=self.group,
            location=self._args.location,
            address_space=network.AddressSpaceArgs(address_prefixes=[self._args.cidr]),
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
        subnet = network.Subnet(
            f"{self.name}-subnet",
            subnet_name="nodes",
            resource_group_name=self.group,
            virtual_network_name=vnet.name,
            address_prefix=self._args.cidr,
            nat_gateway=gateway,
            route_table=routes,
            default_outbound_access=False,
            service_endpoints=[
                network.ServiceEndpointPropertiesFormatArgs(service=STORAGE_SERVICE)
            ],
            opts=self.child(delete_before_replace=True),
        )
        self.subnet_id = subnet.id
        self.prerequisites = (subnet,)

    def _egress_route(
        self,
    ) -> tuple[network.SubResourceArgs | None, network.RouteTableArgs | None]:
        """Declare a NAT gateway or a route table; return the subnet's references, exactly one of which is None."""
        if self._args.firewall_ip is None:
            self.egress, gateway = self._gateway()
            return network.SubResourceArgs(id=gateway.id), None
        return None, network.RouteTableArgs(id=self._routes(self._args.firewall_ip).id)

    def _routes(self, firewall_ip: str) -> network.RouteTable:
        """Declare a route table whose only route leads to a firewall."""
        return network.RouteTable(
            f"{self.name}-routes",
            route_table_name=f"{self._args.name}-routes",
            resource_group_name=self.group,
            location=self._args.location,
            # Routes that a VPN gateway advertises would bypass the firewall.
            disable_bgp_route_propagation=True,
            routes=[
                network.RouteArgs(
                    name="egress",
                    address_prefix="0.0.0.0/0",
                    next_hop_type="VirtualAppliance",
                    next_hop_ip_address=firewall_ip,
                )
            ],
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )

    def _gateway(self) -> tuple[pulumi.Output[str], network.NatGateway]:
        """Declare the NAT gateway; return its public address and the gateway."""
        address = network.PublicIPAddress(
            f"{self.name}-egress",
            public_ip_address_name=f"{self._args.name}-egress",
            resource_group_name=self.group,
            location=self._args.location,
            # The only SKU that a NAT gateway of the SKU Standard accepts.
            sku=network.PublicIPAddressSkuArgs(name="Standard"),
            public_ip_allocation_method="Static",
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
        gateway = network.NatGateway(
            f"{self.name}-gateway",
            nat_gateway_name=f"{self._args.name}-gateway",
            resource_group_name=self.group,
            location=self._args.location,
            sku=network.NatGatewaySkuArgs(name="Standard"),
            public_ip_addresses=[network.SubResourceArgs(id=address.id)],
            tags=self._args.tags,
            opts=self.child(delete_before_replace=True),
        )
        return address.ip_address.apply(lambda ip: ip or ""), gateway
