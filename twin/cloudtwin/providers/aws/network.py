"""Amazon VPC: networks, subnets, gateways, routes. Pure.

Sources: EC2 API Reference (error codes of the Delete* actions, IpPermission), VPC User Guide ("quotas",
"subnet sizing"). Read 2026-11.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cloudtwin.providers.aws.common import DEPENDENCY, arn, ec2, id_with_prefix
from cloudtwin.providers.conditions import (
    cidr,
    failure_at,
    lies_in,
    objects_at,
    overlap,
    value_rule,
)
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import (
    DeletionGuard,
    InputRule,
    Inputs,
    Precondition,
    Reference,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.protocol.values import PropertyValue
from cloudtwin.providers.schema.check import CheckFailure

VPC, SUBNET = "aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"
GATEWAY, NAT = "aws:ec2/internetGateway:InternetGateway", "aws:ec2/natGateway:NatGateway"
EIP = "aws:ec2/eip:Eip"
TABLE, ROUTE = "aws:ec2/routeTable:RouteTable", "aws:ec2/route:Route"
ASSOCIATION = "aws:ec2/routeTableAssociation:RouteTableAssociation"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
GROUP_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
MIN_PREFIX, MAX_PREFIX = 16, 28
TARGETS = ("gatewayId", "natGatewayId", "networkInterfaceId", "transitGatewayId", "vpcEndpointId",
           "vpcPeeringConnectionId", "egressOnlyGatewayId", "coreNetworkArn", "carrierGatewayId",
           "localGatewayId")  # fmt: skip
DESTINATIONS = ("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId")
INLINE_DESTINATIONS = ("cidrBlock", "ipv6CidrBlock", "destinationPrefixListId")
BLOCKS = "VPC User Guide, VPC CIDR blocks"
CREATE_ROUTE = "EC2 API, CreateRoute"
ASSOCIATE_TABLE = "EC2 API, AssociateRouteTable"
VPC_BLOCK = cidr(MIN_PREFIX, MAX_PREFIX, version=4)


def in_vpc() -> Reference:
    """Return a reference to the VPC that a resource is in."""
    return Reference("vpcId", (VPC,), "InvalidVpcID.NotFound", DEPENDENCY)


def in_subnets(path: str) -> Reference:
    """Return a reference to the subnets of a resource's network interfaces."""
    return Reference(path, (SUBNET,), "InvalidSubnetID.NotFound", DEPENDENCY)


def in_groups(path: str, in_use_code: str = DEPENDENCY) -> Reference:
    """Return a reference to the security groups of a resource's network interfaces."""
    return Reference(path, (GROUP,), "InvalidGroup.NotFound", in_use_code)


def in_table(path: str = "routeTableId", in_use_code: str = "", spelling: str = "ID") -> Reference:
    """Return a reference to a route table; the error code for VPC endpoints is spelled with `Id`."""
    return Reference(path, (TABLE,), f"InvalidRouteTable{spelling}.NotFound", in_use_code)


def to_gateways(prefix: str = "") -> tuple[Reference, Reference]:
    """Return references from a route to its gateways."""
    external = ("local", "vgw-")
    return (
        Reference(f"{prefix}gatewayId", (GATEWAY,), "InvalidGatewayID.NotFound", external=external),
        Reference(f"{prefix}natGatewayId", (NAT,), "InvalidNatGatewayID.NotFound"),
    )


# -- input rules


def exactly_one(names: tuple[str, ...], subject: str) -> Any:  # noqa: ANN401  an input check
    """Return the check that exactly one of several inputs is set."""

    def violations(inputs: Inputs) -> Iterator[CheckFailure]:
        set_names = [name for name in names if inputs.get(name) is not None]
        if len(set_names) != 1:
            name_list = ", ".join(names)
            yield failure_at(
                names[0], f"exactly one {subject} is required, not {len(set_names)}: {name_list}"
            )

    return violations


def _zonal_nat(inputs: Inputs) -> Iterable[CheckFailure]:
    if inputs.get("availabilityMode", "zonal") != "zonal":
        return
    if inputs.get("subnetId") is None:
        yield failure_at(
            "subnetId", "it is required and missing: a zonal NAT gateway is in one subnet"
        )
    is_public = inputs.get("connectivityType", "public") == "public"
    if is_public and inputs.get("allocationId") is None:
        yield failure_at("allocationId", "a public NAT gateway needs an Elastic IP address")


def _regional_nat(inputs: Inputs) -> Iterable[CheckFailure]:
    if inputs.get("availabilityMode") != "regional":
        return
    if inputs.get("vpcId") is None:
        yield failure_at(
            "vpcId", "it is required and missing: a regional NAT gateway is in a whole VPC"
        )
    if inputs.get("connectivityType") == "private":
        yield failure_at("connectivityType", "a regional NAT gateway is public")
    for name in ("subnetId", "allocationId"):
        if inputs.get(name) is not None:
            yield failure_at(name, "a regional NAT gateway does not support it: leave it out")


def _no_address_if_private(inputs: Inputs) -> Iterable[CheckFailure]:
    if inputs.get("connectivityType") == "private" and inputs.get("allocationId") is not None:
        yield failure_at("allocationId", "a private NAT gateway has no Elastic IP address")


def _host_names(inputs: Inputs) -> Iterable[CheckFailure]:
    if inputs.get("enableDnsHostnames") and inputs.get("enableDnsSupport") is False:
        yield failure_at("enableDnsHostnames", "host names need enableDnsSupport")


def _one_zone(inputs: Inputs) -> Iterable[CheckFailure]:
    if all(inputs.get(name) is not None for name in ("availabilityZone", "availabilityZoneId")):
        yield failure_at("availabilityZoneId", "it conflicts with availabilityZone: leave one out")


def _inline_targets(inputs: Inputs) -> Iterable[CheckFailure]:
    for path, route in objects_at("routes", inputs):
        for names, subject in ((TARGETS, "target"), (INLINE_DESTINATIONS, "destination")):
            for failure in exactly_one(names, subject)(route):
                yield failure_at(path, failure.reason)


def _border_group(inputs: Inputs) -> Iterable[CheckFailure]:
    group = "ipv6CidrBlockNetworkBorderGroup"
    if inputs.get(group) is not None and inputs.get("assignGeneratedIpv6CidrBlock") is None:
        yield failure_at(group, "it requires assignGeneratedIpv6CidrBlock, which is missing")


# -- preconditions


def _subnet_fits(request: ResourceRequest) -> Iterable[str]:
    vpc = request.find(VPC, "vpcId")
    block, vpc_block = request.inputs.get("cidrBlock"), vpc.inputs.get("cidrBlock") if vpc else None
    if block and vpc_block and not lies_in(block, vpc_block):
        yield f"{block} is not in {vpc_block}, the block of {request.inputs['vpcId']}"


def _subnet_free(request: ResourceRequest) -> Iterable[str]:
    block = request.inputs.get("cidrBlock")
    for other in request.others(SUBNET):
        in_same_vpc = other.inputs.get("vpcId") == request.inputs["vpcId"]
        if in_same_vpc and overlap(block, other.inputs.get("cidrBlock")):
            yield f"{block} conflicts with the subnet {other.id}"


def _has_gateway(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for a public NAT gateway, zonal or regional, in a VPC without an Internet gateway."""
    subnet = request.find(SUBNET, "subnetId")
    vpc = subnet.inputs["vpcId"] if subnet else request.inputs.get("vpcId")
    if request.inputs.get("connectivityType") == "private" or not vpc:
        return
    if not request.account.where(GATEWAY, vpcId=vpc):
        yield f"Network {vpc} has no Internet gateway attached"


def _only_gateway(request: ResourceRequest) -> Iterable[str]:
    vpc = request.inputs.get("vpcId")
    if vpc and any(other.inputs.get("vpcId") == vpc for other in request.others(GATEWAY)):
        yield f"Network {vpc} already has an internet gateway attached"


def _free_address(request: ResourceRequest) -> Iterable[str]:
    address = request.inputs.get("allocationId")
    if address and any(nat.inputs.get("allocationId") == address for nat in request.others(NAT)):
        yield f"Elastic IP address [{address}] is already associated"


def _targets_in_vpc(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each gateway of a route, or of a table's inline routes, that is in another VPC."""
    inputs = request.inputs
    table = request.find(TABLE, "routeTableId")
    vpc, name = (
        (table.inputs.get("vpcId"), table.id) if table else (inputs.get("vpcId"), request.id)
    )
    for route in (inputs, *(route for _, route in objects_at("routes", inputs))):
        for key, title in (("gatewayId", "network gateway"), ("natGatewayId", "NAT gateway")):
            gateway = request.account.find((GATEWAY, NAT), route.get(key) or "")
            if gateway and _vpc_of(gateway, request.account) not in (vpc, None):
                yield f"route table {name} and {title} {gateway.id} belong to different networks"


def _vpc_of(gateway: Resource, account: Inventory) -> PropertyValue:
    subnet = account.find((SUBNET,), gateway.inputs.get("subnetId") or "")
    return (subnet or gateway).inputs.get("vpcId")


def _table_in_vpc(request: ResourceRequest) -> Iterable[str]:
    subnet, table = request.find(SUBNET, "subnetId"), request.find(TABLE, "routeTableId")
    if subnet and table and subnet.inputs["vpcId"] != table.inputs["vpcId"]:
        yield f"Route table {table.id} and subnet {subnet.id} belong to different networks"


def _mapped_addresses(gateway: Resource, account: Inventory) -> Iterable[str]:
    for nat in account.all(NAT):
        if nat.inputs.get("connectivityType") == "private":
            continue  # it has no public address
        if _vpc_of(nat, account) == gateway.inputs.get("vpcId"):
            yield f"Network {gateway.inputs['vpcId']} has some mapped public address(es): {nat.id}"


# -- outputs


def _default_parts(vpc: Resource, _account: Inventory) -> Iterable[Resource]:
    """Yield the default security group and the main route table of a VPC."""
    parts: tuple[tuple[str, str, dict[str, str]], ...] = (
        (
            GROUP,
            "defaultSecurityGroupId",
            {"name": "default", "description": "default VPC security group"},
        ),
        (TABLE, "mainRouteTableId", {}),
    )
    for token, output, fields in parts:
        identity, inputs = str(vpc.outputs[output]), {"vpcId": vpc.id, **fields}
        yield Resource(
            token=token, id=identity, urn=vpc.urn, inputs=inputs, outputs={**inputs, "id": identity},
            acknowledged=True, owner=vpc.id,
        )  # fmt: skip


def _describe_vpc(request: ResourceRequest) -> dict[str, Any]:
    table = f"rtb-0{request.digits('table', 16)}"
    return {
        **ec2("vpc")(request),
        "defaultNetworkAclId": f"acl-0{request.digits('acl', 16)}",
        "defaultRouteTableId": table,
        "mainRouteTableId": table,
        "defaultSecurityGroupId": f"sg-0{request.digits('group', 16)}",
        "dhcpOptionsId": f"dopt-0{request.digits('dhcp', 16)}",
    }


def _public_ip(request: ResourceRequest) -> str:
    return f"203.0.113.{int(request.digits('ip', 2), 16)}"  # a documentation address of RFC 5737


TYPES = (
    ResourceType(
        token=VPC,
        identify=id_with_prefix("vpc"),
        describe=_describe_vpc,
        companions=_default_parts,
        defaults={"instanceTenancy": "default", "enableDnsSupport": True},
        immutable=("cidrBlock", "instanceTenancy", "region", "ipv4IpamPoolId"),
        enums={"instanceTenancy": ("default", "dedicated")},
        rules=(
            value_rule("size of a VPC", "cidrBlock", VPC_BLOCK, BLOCKS),
            InputRule("host names of a VPC", "EC2 API, ModifyVpcAttribute", _host_names),
            InputRule("border group of a VPC", "Terraform AWS provider, aws_vpc", _border_group),
        ),
    ),
    ResourceType(
        token=SUBNET,
        identify=id_with_prefix("subnet"),
        describe=lambda request: {
            **ec2("subnet")(request),
            "availabilityZone": request.inputs.get("availabilityZone") or f"{request.region}a",
        },
        immutable=("vpcId", "cidrBlock", "availabilityZone", "availabilityZoneId", "region"),
        rules=(
            value_rule("size of a subnet", "cidrBlock", VPC_BLOCK, BLOCKS),
            InputRule("zone of a subnet", "Terraform AWS provider, aws_subnet", _one_zone),
        ),
        references=(in_vpc(),),
        preconditions=(
            Precondition("subnet in its VPC", BLOCKS, "InvalidSubnet.Range", _subnet_fits),
            Precondition("subnets do not overlap", BLOCKS, "InvalidSubnet.Conflict", _subnet_free),
        ),
    ),
    ResourceType(
        token=GATEWAY,
        identify=id_with_prefix("igw"),
        describe=ec2("internet-gateway"),
        references=(in_vpc(),),
        preconditions=(
            Precondition(
                "one Internet gateway of a VPC", "EC2 API, AttachInternetGateway",
                "InvalidParameterValue", _only_gateway,
            ),
        ),
        deletion_guards=(
            DeletionGuard(
                "mapped addresses", "EC2 API, DetachInternetGateway", DEPENDENCY, _mapped_addresses
            ),
        ),
    ),
    ResourceType(
        token=EIP,
        identify=id_with_prefix("eipalloc"),
        describe=lambda request: {
            "arn": arn("ec2", f"elastic-ip/{request.id}", request.region),
            "allocationId": request.id,
            "publicIp": _public_ip(request),
        },
        immutable=("domain", "region"),
        enums={"domain": ("vpc",)},
    ),
    ResourceType(
        token=NAT,
        identify=id_with_prefix("nat"),
        describe=lambda request: {
            "networkInterfaceId": f"eni-0{request.digits('eni', 16)}",
            "publicIp": _public_ip(request),
        },
        defaults={"connectivityType": "public"},
        immutable=("allocationId", "subnetId", "connectivityType", "privateIp", "region",
                   "availabilityMode"),
        rules=(
            InputRule("zonal NAT gateway", "EC2 API, CreateNatGateway", _zonal_nat),
            InputRule("regional NAT gateway", "EC2 API, CreateNatGateway", _regional_nat),
            InputRule("private NAT gateway", "EC2 API, CreateNatGateway", _no_address_if_private),
        ),
        references=(
            in_vpc(),
            in_subnets("subnetId"),
            Reference(
                "allocationId", (EIP,), "InvalidAllocationID.NotFound", "InvalidIPAddress.InUse"
            ),
        ),
        preconditions=(
            Precondition(
                "Internet gateway of a NAT gateway", "EC2 API, CreateNatGateway",
                "Gateway.NotAttached", _has_gateway,
            ),
            Precondition(
                "address of a NAT gateway", "EC2 API, CreateNatGateway",
                "Resource.AlreadyAssociated", _free_address,
            ),
        ),
    ),
    ResourceType(
        token=TABLE,
        identify=id_with_prefix("rtb"),
        describe=ec2("route-table"),
        immutable=("vpcId", "region"),
        rules=(
            value_rule("inline routes", "routes.*.cidrBlock", cidr(version=4), CREATE_ROUTE),
            value_rule(
                "inline IPv6 routes", "routes.*.ipv6CidrBlock", cidr(version=6), CREATE_ROUTE
            ),
            InputRule("targets of inline routes", CREATE_ROUTE, _inline_targets),
        ),
        references=(in_vpc(), *to_gateways("routes.*.")),
        preconditions=(
            Precondition(
                "inline routes in one VPC", CREATE_ROUTE, "InvalidParameterValue", _targets_in_vpc
            ),
        ),
    ),
    ResourceType(
        token=ROUTE,
        identify=lambda request: f"r-{request.inputs['routeTableId']}{request.entropy[:10]}",
        describe=lambda _request: {"origin": "CreateRoute", "state": "active"},
        immutable=("routeTableId", "destinationCidrBlock", "destinationIpv6CidrBlock", "region"),
        rules=(
            InputRule("target of a route", CREATE_ROUTE, exactly_one(TARGETS, "target")),
            InputRule(
                "destination of a route", CREATE_ROUTE, exactly_one(DESTINATIONS, "destination")
            ),
            value_rule("IPv4 block of a route", DESTINATIONS[0], cidr(version=4), CREATE_ROUTE),
            value_rule("IPv6 block of a route", DESTINATIONS[1], cidr(version=6), CREATE_ROUTE),
        ),
        references=(in_table(), *to_gateways()),
        preconditions=(
            Precondition("route in one VPC", CREATE_ROUTE, "InvalidParameterValue", _targets_in_vpc),
        ),
        unique=("routeTableId", *DESTINATIONS),
        unique_code="RouteAlreadyExists",
    ),
    ResourceType(
        token=ASSOCIATION,
        identify=id_with_prefix("rtbassoc"),
        immutable=("subnetId", "gatewayId", "region"),
        rules=(
            InputRule(
                "target of an association", ASSOCIATE_TABLE, exactly_one(("subnetId", "gatewayId"), "target")
            ),
        ),
        references=(
            Reference("subnetId", (SUBNET,), "InvalidSubnetID.NotFound"),
            in_table(in_use_code=DEPENDENCY),
        ),
        preconditions=(
            Precondition("table in the VPC of a subnet", ASSOCIATE_TABLE, "InvalidParameterValue", _table_in_vpc),
        ),
        unique=("subnetId",),
        unique_code="Resource.AlreadyAssociated",
    ),
)  # fmt: skip
