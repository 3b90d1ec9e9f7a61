"""Amazon VPC: networks, subnets, ways out, security groups. Pure.

Sources: EC2 API Reference (error codes of the Delete* actions), VPC User Guide ("quotas", "subnet
sizing").
"""

# ruff: noqa: S106  (a token is the name of a type here, and no password)

import ipaddress
from collections.abc import Iterable
from typing import Any

from twin.clouds.aws.common import ACCOUNT, DEPENDENCY, arn, ec2, prefixed
from twin.clouds.model import (
    Demand,
    Hold,
    Inputs,
    Making,
    Reference,
    ResourceType,
    Rule,
)
from twin.clouds.rules import at, lies_in
from twin.clouds.wire.check import Mistake
from twin.clouds.world import Resource, World

VPC, SUBNET = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"
GATEWAY, NAT, EIP = (
    "aws:ec2/internetGateway:InternetGateway",
    "aws:ec2/natGateway:NatGateway",
    "aws:ec2/eip:Eip",
)
TABLE, ROUTE = "aws:ec2/routeTable:RouteTable", "aws:ec2/route:Route"
ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
WIDEST, NARROWEST = 16, 28
GUIDE = "VPC User Guide, VPC CIDR blocks"


def in_vpc(*, holds: bool = True) -> Reference:
    """Return the reference of everything that lies in a VPC."""
    code = "InvalidVpcID.NotFound"
    return Reference(path="vpcId", to=(VPC,), code=code, holds=DEPENDENCY if holds else "")


def in_subnets(path: str) -> Reference:
    """Return the reference of everything with a network interface in a subnet."""
    return Reference(path=path, to=(SUBNET,), code="InvalidSubnetID.NotFound", holds=DEPENDENCY)


def in_groups(path: str) -> Reference:
    """Return the reference of everything whose interfaces bear a security group."""
    return Reference(path=path, to=(GROUP,), code="InvalidGroup.NotFound", holds=DEPENDENCY)


def cidr_faults(path: str, value: object, *, source_range: bool = False) -> Iterable[Mistake]:
    """Refuse what is no IPv4 block, or none that a VPC or subnet may have."""
    if not isinstance(value, str):
        return
    try:
        block = ipaddress.ip_network(value)
    except ValueError as error:
        yield at(path, f"{value!r} is no CIDR block: {error}")
        return
    if not source_range and not WIDEST <= block.prefixlen <= NARROWEST:
        yield at(path, f"{value} is no block between /{WIDEST} and /{NARROWEST}")


def _subnet_fits(making: Making) -> Iterable[str]:
    vpc = making.world.find((VPC,), str(making.inputs["vpcId"]))
    mine, whole = making.inputs.get("cidrBlock"), vpc.inputs.get("cidrBlock") if vpc else None
    if mine and whole and not lies_in(mine, whole):
        yield f"{mine} is not in {whole}, the block of {making.inputs['vpcId']}"


def _subnet_free(making: Making) -> Iterable[str]:
    mine = ipaddress.ip_network(str(making.inputs.get("cidrBlock") or "0.0.0.0/32"))
    for other in making.world.all(SUBNET):
        same = other.inputs["vpcId"] == making.inputs["vpcId"] and other.id != making.id
        if same and mine.overlaps(ipaddress.ip_network(str(other.inputs["cidrBlock"]))):
            yield f"{mine} conflicts with the subnet {other.id}"


def _has_gateway(making: Making) -> Iterable[str]:
    """An elastic address, and a public NAT gateway, work only where the VPC has a way out."""
    subnet = making.world.find((SUBNET,), str(making.inputs.get("subnetId") or ""))
    vpc = subnet and subnet.inputs["vpcId"]
    if making.inputs.get("connectivityType") == "private" or not vpc:
        return
    if not any(each.inputs.get("vpcId") == vpc for each in making.world.all(GATEWAY)):
        yield f"Network {vpc} has no Internet gateway attached"


def _mapped_addresses(gone: Resource, world: World) -> Iterable[str]:
    for nat in world.all(NAT):
        subnet = world.find((SUBNET,), str(nat.inputs.get("subnetId") or ""))
        if subnet and subnet.inputs["vpcId"] == gone.inputs.get("vpcId"):
            yield f"Network {gone.inputs['vpcId']} has some mapped public address(es): {nat.id}"


def _vpc_brings(vpc: Resource, _world: World) -> Iterable[Resource]:
    group = str(vpc.outputs["defaultSecurityGroupId"])
    inputs = {"vpcId": vpc.id, "name": "default", "description": "default VPC security group"}
    yield Resource(
        token=GROUP, id=group, urn=vpc.urn, inputs=inputs, outputs={**inputs, "id": group},
        answered=True, owner=vpc.id,
    )  # fmt: skip


def _describe_vpc(making: Making) -> dict[str, Any]:
    table = f"rtb-0{making.digits('table', 16)}"
    return {
        **ec2("vpc")(making),
        "defaultNetworkAclId": f"acl-0{making.digits('acl', 16)}",
        "defaultRouteTableId": table,
        "mainRouteTableId": table,
        "defaultSecurityGroupId": f"sg-0{making.digits('group', 16)}",
        "dhcpOptionsId": f"dopt-0{making.digits('dhcp', 16)}",
    }


def _endpoint_service(inputs: Inputs) -> Iterable[Mistake]:
    name, region = inputs.get("serviceName"), inputs.get("region")
    if isinstance(name, str) and isinstance(region, str):
        start = f"com.amazonaws.{region}."
        if name.startswith("com.amazonaws.") and not name.startswith(start):
            yield at("serviceName", f"{name!r} is not in {region}: it would begin with {start}")


def _nat_mode(inputs: Inputs) -> Iterable[Mistake]:
    zonal = inputs.get("availabilityMode", "zonal") == "zonal"
    public = inputs.get("connectivityType", "public") == "public"
    if zonal and inputs.get("subnetId") is None:
        yield at("subnetId", "a zonal NAT gateway is in one subnet: it is required and missing")
    if zonal and public and inputs.get("allocationId") is None:
        yield at("allocationId", "a public NAT gateway needs an elastic address")


def _route_target(inputs: Inputs) -> Iterable[Mistake]:
    names = ("gatewayId", "natGatewayId", "networkInterfaceId", "transitGatewayId",
             "vpcEndpointId", "vpcPeeringConnectionId", "egressOnlyGatewayId", "coreNetworkArn",
             "carrierGatewayId", "localGatewayId")  # fmt: skip
    given = [name for name in names if inputs.get(name) is not None]
    if len(given) != 1:
        yield at("gatewayId", f"a route has exactly one target, this one has {len(given)}")


TYPES = (
    ResourceType(
        token=VPC,
        identify=prefixed("vpc"),
        describe=_describe_vpc,
        brings=_vpc_brings,
        defaults={"instanceTenancy": "default", "enableDnsSupport": True},
        immutable=("cidrBlock", "instanceTenancy", "region", "ipv4IpamPoolId"),
        enums={"instanceTenancy": ("default", "dedicated")},
        rules=(
            Rule(
                name="size of a VPC",
                source=GUIDE,
                broken=lambda inputs: cidr_faults("cidrBlock", inputs.get("cidrBlock")),
            ),
        ),
    ),
    ResourceType(
        token=SUBNET,
        identify=prefixed("subnet"),
        describe=lambda making: {
            **ec2("subnet")(making),
            "availabilityZone": making.inputs.get("availabilityZone") or f"{making.region}a",
        },
        immutable=("vpcId", "cidrBlock", "availabilityZone", "availabilityZoneId", "region"),
        rules=(
            Rule(
                name="size of a subnet",
                source=GUIDE,
                broken=lambda inputs: cidr_faults("cidrBlock", inputs.get("cidrBlock")),
            ),
        ),
        references=(in_vpc(),),
        demands=(
            Demand(
                name="subnet in its VPC",
                source=GUIDE,
                code="InvalidSubnet.Range",
                broken=_subnet_fits,
            ),
            Demand(
                name="subnets apart",
                source=GUIDE,
                code="InvalidSubnet.Conflict",
                broken=_subnet_free,
            ),
        ),
    ),
    ResourceType(
        token=GATEWAY,
        identify=prefixed("igw"),
        describe=ec2("internet-gateway"),
        references=(in_vpc(),),
        holds=(
            Hold(
                name="mapped addresses",
                source="EC2 API, DetachInternetGateway",
                code=DEPENDENCY,
                broken=_mapped_addresses,
            ),
        ),
    ),
    ResourceType(
        token=EIP,
        identify=prefixed("eipalloc"),
        describe=lambda making: {
            "arn": arn("ec2", f"elastic-ip/{making.id}", making.region),
            "allocationId": making.id,
            "publicIp": f"203.0.113.{int(making.digits('ip', 2), 16)}",  # RFC 5737: documentation
        },
        immutable=("domain", "region"),
        enums={"domain": ("vpc",)},
    ),
    ResourceType(
        token=NAT,
        identify=prefixed("nat"),
        describe=lambda making: {
            "networkInterfaceId": f"eni-0{making.digits('eni', 16)}",
            "publicIp": f"203.0.113.{int(making.digits('ip', 2), 16)}",
        },
        defaults={"connectivityType": "public"},
        immutable=(
            "allocationId",
            "subnetId",
            "connectivityType",
            "privateIp",
            "region",
            "availabilityMode",
        ),
        enums={
            "connectivityType": ("public", "private"),
            "availabilityMode": ("zonal", "regional"),
        },
        rules=(
            Rule(
                name="place of a NAT gateway", source="EC2 API, CreateNatGateway", broken=_nat_mode
            ),
        ),
        references=(
            in_subnets("subnetId"),
            Reference(
                path="allocationId",
                to=(EIP,),
                code="InvalidAllocationID.NotFound",
                holds="InvalidIPAddress.InUse",
            ),
        ),
        demands=(
            Demand(
                name="NAT gateway with a way out",
                source="EC2 API, CreateNatGateway",
                code="Gateway.NotAttached",
                broken=_has_gateway,
            ),
        ),
    ),
    ResourceType(
        token=TABLE,
        identify=prefixed("rtb"),
        describe=ec2("route-table"),
        immutable=("vpcId", "region"),
        references=(
            in_vpc(),
            Reference(
                path="routes.*.gatewayId",
                to=(GATEWAY,),
                code="InvalidGatewayID.NotFound",
                own=("local", "vgw-"),
            ),
            Reference(path="routes.*.natGatewayId", to=(NAT,), code="InvalidNatGatewayID.NotFound"),
        ),
    ),
    ResourceType(
        token=ROUTE,
        identify=lambda making: f"r-{making.inputs['routeTableId']}{making.entropy[:10]}",
        describe=lambda _making: {"origin": "CreateRoute", "state": "active"},
        immutable=("routeTableId", "destinationCidrBlock", "destinationIpv6CidrBlock", "region"),
        rules=(
            Rule(name="target of a route", source="EC2 API, CreateRoute", broken=_route_target),
            Rule(
                name="destination of a route",
                source="EC2 API, CreateRoute",
                broken=lambda inputs: cidr_faults(
                    "destinationCidrBlock", inputs.get("destinationCidrBlock"), source_range=True
                ),
            ),
        ),
        references=(
            Reference(path="routeTableId", to=(TABLE,), code="InvalidRouteTableID.NotFound"),
            Reference(
                path="gatewayId",
                to=(GATEWAY,),
                code="InvalidGatewayID.NotFound",
                own=("local", "vgw-"),
            ),
            Reference(path="natGatewayId", to=(NAT,), code="InvalidNatGatewayID.NotFound"),
        ),
        unique=("routeTableId", "destinationCidrBlock"),
        unique_code="RouteAlreadyExists",
    ),
    ResourceType(
        token=ASSOCIATION,
        identify=prefixed("rtbassoc"),
        immutable=("subnetId", "gatewayId", "region"),
        references=(
            Reference(path="subnetId", to=(SUBNET,), code="InvalidSubnetID.NotFound"),
            Reference(
                path="routeTableId",
                to=(TABLE,),
                code="InvalidRouteTableID.NotFound",
                holds=DEPENDENCY,
            ),
        ),
        unique=("subnetId",),
        unique_code="Resource.AlreadyAssociated",
    ),
    ResourceType(
        token=ENDPOINT,
        identify=prefixed("vpce"),
        describe=lambda making: {
            "arn": arn("ec2", f"vpc-endpoint/{making.id}", making.region),
            "ownerId": ACCOUNT,
            "state": "available",
            "prefixListId": f"pl-{making.digits('list', 8)}",
        },
        defaults={"vpcEndpointType": "Gateway"},
        immutable=("vpcId", "serviceName", "vpcEndpointType", "region"),
        enums={
            "vpcEndpointType": (
                "Gateway",
                "Interface",
                "GatewayLoadBalancer",
                "Resource",
                "ServiceNetwork",
            )
        },
        rules=(
            Rule(
                name="region of an endpoint",
                source="AWS PrivateLink Guide",
                broken=_endpoint_service,
            ),
        ),
        references=(
            in_vpc(),
            in_subnets("subnetIds.*"),
            in_groups("securityGroupIds.*"),
            Reference(path="routeTableIds.*", to=(TABLE,), code="InvalidRouteTableId.NotFound"),
        ),
    ),
    ResourceType(
        token="aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation",
        identify=lambda making: f"a-{making.inputs['vpcEndpointId']}{making.entropy[:10]}",
        immutable=("routeTableId", "vpcEndpointId", "region"),
        references=(
            Reference(path="routeTableId", to=(TABLE,), code="InvalidRouteTableId.NotFound"),
            Reference(path="vpcEndpointId", to=(ENDPOINT,), code="InvalidVpcEndpointId.NotFound"),
        ),
    ),
)
