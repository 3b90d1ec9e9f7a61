"""The VPC of an EKS cluster: made, or the user's own.

Nodes stand in private subnets and leave through a NAT gateway; the S3 gateway endpoint costs nothing
and keeps images' layers and the training data off that gateway, which is paid for by the gigabyte.
One gateway, in the zone of the GPU nodes, serves all zones unless the stack asks for one a zone:
the dearest traffic then never crosses zones, and a lost zone takes a training of its own with it
anyway.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.config import EksConfig
from components.network.cidr import ZoneBlocks, subnets
from components.part import Part

ANYWHERE = "0.0.0.0/0"


@dataclass(frozen=True, kw_only=True)
class VpcArgs:
    """What to make.

    Attributes:
        config: the stack's `cluster` section: name, region, zones, network.
    """

    config: EksConfig


class Vpc(Part):
    """A VPC with a private subnet a zone.

    Attributes:
        vpc_id: the VPC.
        private: zone -> private subnet, where nodes and the file system stand.
        ready: what nodes need to reach anything: they must outlive it, and it them.
    """

    vpc_id: pulumi.Output[str]
    private: Mapping[str, pulumi.Output[str]]
    ready: tuple[pulumi.Resource, ...]

    def __init__(
        self, name: str, args: VpcArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("network:Vpc", name, opts)
        self._config = args.config
        if args.config.network.vpc_id is None:
            self._make()
        else:
            self._take(args.config.network.vpc_id)
        self.register_outputs({"vpcId": self.vpc_id, "privateSubnetIds": dict(self.private)})

    def _take(self, vpc_id: str) -> None:
        """Use what is there; its routes are the user's."""
        self.vpc_id = pulumi.Output.from_input(vpc_id)
        subnet_ids = self._config.network.private_subnet_ids
        self.private = {
            zone: pulumi.Output.from_input(subnet_ids[zone]) for zone in self._config.zones
        }
        self.ready = ()

    def _make(self) -> None:
        """Declare the VPC, its subnets and its ways out."""
        config = self._config
        vpc = aws.ec2.Vpc(
            f"{self.name}-vpc",
            cidr_block=config.network.cidr,
            enable_dns_hostnames=True,  # FSx and the private API endpoint are found by name
            enable_dns_support=True,
            tags=self._named(""),
            opts=self.child(),
        )
        blocks = subnets(config.network.cidr, config.zones)
        private = {zone: self._private(zone, blocks[zone], vpc) for zone in config.zones}
        gateways = self._gateways(vpc, blocks)
        ways_out = [self._private_route(zone, gateways, private[zone], vpc) for zone in private]
        tables = [table for table, _ in ways_out]
        self.vpc_id = vpc.id
        self.private = {zone: subnet.id for zone, subnet in private.items()}
        self.ready = (
            *(one for _, resources in ways_out for one in resources),
            self._storage_endpoint(vpc, tables),
        )

    def _private(self, zone: str, blocks: ZoneBlocks, vpc: aws.ec2.Vpc) -> aws.ec2.Subnet:
        """Declare a zone's subnet for nodes; internal load balancers, if any, go there too."""
        return aws.ec2.Subnet(
            f"{self.name}-private-{zone}",
            vpc_id=vpc.id,
            availability_zone=zone,
            cidr_block=blocks.private,
            tags={**self._named(f"private-{zone}"), "kubernetes.io/role/internal-elb": "1"},
            opts=self.child(),
        )

    def _gateways(
        self, vpc: aws.ec2.Vpc, blocks: Mapping[str, ZoneBlocks]
    ) -> Mapping[str, aws.ec2.NatGateway]:
        """Declare the public side and give each zone its NAT gateway."""
        config = self._config
        internet = aws.ec2.InternetGateway(
            f"{self.name}-internet", vpc_id=vpc.id, tags=self._named(""), opts=self.child()
        )
        table = aws.ec2.RouteTable(
            f"{self.name}-public-table",
            vpc_id=vpc.id,
            tags=self._named("public"),
            opts=self.child(),
        )
        route = aws.ec2.Route(
            f"{self.name}-public-route",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=internet.id,
            opts=self.child(),
        )
        serving = config.zones if config.network.nat_per_zone else (config.gpu_zone,)
        made = {zone: self._nat(zone, blocks[zone], vpc, table, route) for zone in serving}
        return {zone: made.get(zone, made[serving[0]]) for zone in config.zones}

    def _nat(
        self,
        zone: str,
        blocks: ZoneBlocks,
        vpc: aws.ec2.Vpc,
        table: aws.ec2.RouteTable,
        route: aws.ec2.Route,
    ) -> aws.ec2.NatGateway:
        """Declare a zone's public subnet and the gateway in it."""
        subnet = aws.ec2.Subnet(
            f"{self.name}-public-{zone}",
            vpc_id=vpc.id,
            availability_zone=zone,
            cidr_block=blocks.public,
            tags={**self._named(f"public-{zone}"), "kubernetes.io/role/elb": "1"},
            opts=self.child(),
        )
        association = aws.ec2.RouteTableAssociation(
            f"{self.name}-public-{zone}-association",
            subnet_id=subnet.id,
            route_table_id=table.id,
            opts=self.child(),
        )
        address = aws.ec2.Eip(
            f"{self.name}-nat-{zone}-address",
            domain="vpc",
            tags=self._named(f"nat-{zone}"),
            opts=self.child(after=[route]),  # an address cannot be used before the way out is there
        )
        return aws.ec2.NatGateway(
            f"{self.name}-nat-{zone}",
            subnet_id=subnet.id,
            allocation_id=address.id,
            tags=self._named(f"nat-{zone}"),
            opts=self.child(after=[route, association]),
        )

    def _private_route(
        self,
        zone: str,
        gateways: Mapping[str, aws.ec2.NatGateway],
        subnet: aws.ec2.Subnet,
        vpc: aws.ec2.Vpc,
    ) -> tuple[aws.ec2.RouteTable, tuple[pulumi.Resource, ...]]:
        """Declare a zone's way out; each zone has a table of its own, also behind one gateway."""
        table = aws.ec2.RouteTable(
            f"{self.name}-private-{zone}-table",
            vpc_id=vpc.id,
            tags=self._named(f"private-{zone}"),
            opts=self.child(),
        )
        route = aws.ec2.Route(
            f"{self.name}-private-{zone}-route",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            nat_gateway_id=gateways[zone].id,
            opts=self.child(),
        )
        association = aws.ec2.RouteTableAssociation(
            f"{self.name}-private-{zone}-association",
            subnet_id=subnet.id,
            route_table_id=table.id,
            opts=self.child(),
        )
        return table, (route, association)

    def _storage_endpoint(
        self, vpc: aws.ec2.Vpc, tables: list[aws.ec2.RouteTable]
    ) -> aws.ec2.VpcEndpoint:
        """Declare the free way to S3, where images' layers and the training data lie."""
        return aws.ec2.VpcEndpoint(
            f"{self.name}-s3",
            vpc_id=vpc.id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{self._config.region}.s3",
            route_table_ids=[table.id for table in tables],
            tags=self._named("s3"),
            opts=self.child(),
        )

    def _named(self, what: str) -> dict[str, str]:
        """Give the tag that the console shows as a name; the provider adds the stack's own."""
        return {"Name": f"{self._config.name}-{what}" if what else self._config.name}
