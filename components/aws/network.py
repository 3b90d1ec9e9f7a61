"""The VPC of an EKS cluster: created, or an existing one.

Nodes are in private subnets and reach the internet through a NAT gateway. The S3 gateway endpoint is
free and keeps image layers and training data off that gateway, which is billed by the gigabyte. By
default, one gateway in the zone of the preferred GPU pool serves all zones: the most expensive traffic
then stays in its zone, and the loss of that zone ends the training anyway.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2

from components.cidr import ZoneBlocks, subnets
from components.component import Component

ANYWHERE = "0.0.0.0/0"


@dataclass(frozen=True, kw_only=True)
class ExistingVpc:
    """An existing VPC.

    Attributes:
        vpc_id: id of the VPC.
        private_subnet_ids: zone -> id of a private subnet, whose routes lead to the internet.
    """

    vpc_id: pulumi.Input[str]
    private_subnet_ids: Mapping[str, pulumi.Input[str]]


@dataclass(frozen=True, kw_only=True)
class VpcArgs:
    """Arguments of a Vpc.

    Attributes:
        name: name of the cluster, prefix of all Name tags.
        region: AWS region.
        zones: availability zones.
        nat_zones: zones that get a NAT gateway; the first also serves the zones without a gateway.
        cidr: addresses of a new VPC, /16 to /21.
        existing: a VPC to use; None: a new one is created.
    """

    name: str
    region: str
    zones: Sequence[str]
    nat_zones: Sequence[str]
    cidr: str
    existing: ExistingVpc | None = None


class Vpc(Component):
    """A VPC with one private subnet per zone.

    Attributes:
        vpc_id: id of the VPC.
        private_subnet_ids: zone -> id of the private subnet, for nodes and the file system.
        prerequisites: routes that nodes need to join the cluster and keep until they are deleted.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: Mapping[str, pulumi.Output[str]]
    prerequisites: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: VpcArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("network:Vpc", name, opts)
        self._args = args
        if args.existing is None:
            self._create()
        else:
            self._use(args.existing)
        subnet_ids = dict(self.private_subnet_ids)
        self.register_outputs({"vpcId": self.vpc_id, "privateSubnetIds": subnet_ids})

    def _use(self, existing: ExistingVpc) -> None:
        """Use an existing VPC, whose routes are not managed here."""
        self.vpc_id = pulumi.Output.from_input(existing.vpc_id)
        self.private_subnet_ids = {
            zone: pulumi.Output.from_input(existing.private_subnet_ids[zone])
            for zone in self._args.zones
        }
        self.prerequisites = ()

    def _create(self) -> None:
        """Declare the VPC, its subnets and its egress routes."""
        vpc = ec2.Vpc(
            f"{self.name}-vpc",
            cidr_block=self._args.cidr,
            enable_dns_hostnames=True,  # FSx and the private API endpoint have DNS names
            enable_dns_support=True,
            tags=self._name_tag(""),
            opts=self.child(),
        )
        blocks = subnets(self._args.cidr, self._args.zones)
        private = {zone: self._private(zone, blocks[zone], vpc) for zone in self._args.zones}
        gateways = self._gateways(vpc, blocks)
        egress = [self._private_route(zone, gateways, private[zone], vpc) for zone in private]
        tables = [table for table, _ in egress]
        self.vpc_id = vpc.id
        self.private_subnet_ids = {zone: subnet.id for zone, subnet in private.items()}
        self.prerequisites = (
            *(resource for _, resources in egress for resource in resources),
            self._storage_endpoint(vpc, tables),
        )

    def _private(self, zone: str, blocks: ZoneBlocks, vpc: ec2.Vpc) -> ec2.Subnet:
        """Declare the subnet of a zone for nodes and internal load balancers."""
        return ec2.Subnet(
            f"{self.name}-private-{zone}",
            vpc_id=vpc.id,
            availability_zone=zone,
            cidr_block=blocks.private,
            tags={**self._name_tag(f"private-{zone}"), "kubernetes.io/role/internal-elb": "1"},
            opts=self.child(),
        )

    def _gateways(
        self, vpc: ec2.Vpc, blocks: Mapping[str, ZoneBlocks]
    ) -> Mapping[str, ec2.NatGateway]:
        """Declare the internet gateway and the NAT gateways; return the NAT gateway that serves each zone."""
        internet = ec2.InternetGateway(
            f"{self.name}-internet", vpc_id=vpc.id, tags=self._name_tag(""), opts=self.child()
        )
        table = ec2.RouteTable(
            f"{self.name}-public-table",
            vpc_id=vpc.id,
            tags=self._name_tag("public"),
            opts=self.child(),
        )
        route = ec2.Route(
            f"{self.name}-public-route",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=internet.id,
            opts=self.child(),
        )
        nat_zones = self._args.nat_zones
        gateways = {zone: self._nat(zone, blocks[zone], vpc, table, route) for zone in nat_zones}
        return {zone: gateways.get(zone, gateways[nat_zones[0]]) for zone in self._args.zones}

    def _nat(
        self,
        zone: str,
        blocks: ZoneBlocks,
        vpc: ec2.Vpc,
        table: ec2.RouteTable,
        route: ec2.Route,
    ) -> ec2.NatGateway:
        """Declare the public subnet of a zone and the NAT gateway in it."""
        subnet = ec2.Subnet(
            f"{self.name}-public-{zone}",
            vpc_id=vpc.id,
            availability_zone=zone,
            cidr_block=blocks.public,
            tags={**self._name_tag(f"public-{zone}"), "kubernetes.io/role/elb": "1"},
            opts=self.child(),
        )
        association = ec2.RouteTableAssociation(
            f"{self.name}-public-{zone}-association",
            subnet_id=subnet.id,
            route_table_id=table.id,
            opts=self.child(),
        )
        address = ec2.Eip(
            f"{self.name}-nat-{zone}-address",
            domain="vpc",
            tags=self._name_tag(f"nat-{zone}"),
            opts=self.child(depends_on=[route]),  # an Elastic IP needs an internet gateway
        )
        return ec2.NatGateway(
            f"{self.name}-nat-{zone}",
            subnet_id=subnet.id,
            allocation_id=address.id,
            tags=self._name_tag(f"nat-{zone}"),
            opts=self.child(depends_on=[route, association]),
        )

    def _private_route(
        self,
        zone: str,
        gateways: Mapping[str, ec2.NatGateway],
        subnet: ec2.Subnet,
        vpc: ec2.Vpc,
    ) -> tuple[ec2.RouteTable, tuple[pulumi.Resource, ...]]:
        """Declare the egress route of a zone and return its own route table, and the resources that nodes need."""
        table = ec2.RouteTable(
            f"{self.name}-private-{zone}-table",
            vpc_id=vpc.id,
            tags=self._name_tag(f"private-{zone}"),
            opts=self.child(),
        )
        route = ec2.Route(
            f"{self.name}-private-{zone}-route",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            nat_gateway_id=gateways[zone].id,
            opts=self.child(),
        )
        association = ec2.RouteTableAssociation(
            f"{self.name}-private-{zone}-association",
            subnet_id=subnet.id,
            route_table_id=table.id,
            opts=self.child(),
        )
        return table, (route, association)

    def _storage_endpoint(self, vpc: ec2.Vpc, tables: list[ec2.RouteTable]) -> ec2.VpcEndpoint:
        """Declare the gateway endpoint of S3, which stores image layers and training data."""
        return ec2.VpcEndpoint(
            f"{self.name}-s3",
            vpc_id=vpc.id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{self._args.region}.s3",
            route_table_ids=[table.id for table in tables],
            tags=self._name_tag("s3"),
            opts=self.child(),
        )

    def _name_tag(self, suffix: str) -> dict[str, str]:
        """Return the tag that the console shows as a name; the provider adds the stack's tags."""
        return {"Name": f"{self._args.name}-{suffix}" if suffix else self._args.name}
