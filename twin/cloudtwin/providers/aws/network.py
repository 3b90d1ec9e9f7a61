"""Amazon VPC: networks, subnets, gateways, routes, security groups. Pure.

Sources: EC2 API Reference (error codes of the Delete* actions, IpPermission), VPC User Guide ("quotas",
"subnet sizing"). Read 2026-11.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers.aws.common import DEPENDENCY, arn, ec2, id_with_prefix
from cloudtwin.providers.conditions import cidr, failure_at, lies_in, matches, overlap, value_rule
from cloudtwin.providers.inventory import Inventory, Resource
from cloudtwin.providers.model import (
    DeletionGuard,
    InputRule,
    Inputs,
    Naming,
    Precondition,
    Reference,
    ResourceRequest,
    ResourceType,
)
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
LAST_PORT = 65535
ICMP = ("icmp", "icmpv6", "1", "58")
TARGETS = ("gatewayId", "natGatewayId", "networkInterfaceId", "transitGatewayId", "vpcEndpointId",
           "vpcPeeringConnectionId", "egressOnlyGatewayId", "coreNetworkArn", "carrierGatewayId",
           "localGatewayId")  # fmt: skip
DESTINATIONS = ("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId")
SOURCES = ("cidrIpv4", "cidrIpv6", "prefixListId", "referencedSecurityGroupId")
BLOCKS = "VPC User Guide, VPC CIDR blocks"
CREATE_ROUTE, PERMISSION = "EC2 API, CreateRoute", "EC2 API, IpPermission"
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


def _exactly_one(names: tuple[str, ...], subject: str) -> Any:  # noqa: ANN401  an input check
    def violations(inputs: Inputs) -> Iterator[CheckFailure]:
        set_names = [name for name in names if inputs.get(name) is not None]
        if len(set_names) != 1:
            name_list = ", ".join(names)
            yield failure_at(
                names[0], f"exactly one {subject} is required, not {len(set_names)}: {name_list}"
            )

    return violations


def _endpoint_service(inputs: Inputs) -> Iterable[CheckFailure]:
    name, region = inputs.get("serviceName"), inputs.get("region")
    if isinstance(name, str) and isinstance(region, str):
        prefix = f"com.amazonaws.{region}."
        if name.startswith("com.amazonaws.") and not name.startswith(prefix):
            yield failure_at(
                "serviceName", f"{name!r} is not in {region}: it must begin with {prefix}"
            )


def _zonal_nat(inputs: Inputs) -> Iterable[CheckFailure]:
    if inputs.get("availabilityMode", "zonal") != "zonal":
        return
    if inputs.get("subnetId") is None:
        yield failure_at(
            "subnetId", "a zonal NAT gateway is in one subnet: it is required and missing"
        )
    is_public = inputs.get("connectivityType", "public") == "public"
    if is_public and inputs.get("allocationId") is None:
        yield failure_at("allocationId", "a public NAT gateway needs an Elastic IP address")


def _regional_nat(inputs: Inputs) -> Iterable[CheckFailure]:
    if inputs.get("availabilityMode") != "regional":
        return
    if inputs.get("vpcId") is None:
        yield failure_at(
            "vpcId", "a regional NAT gateway is in a whole VPC: it is required and missing"
        )
    if inputs.get("connectivityType") == "private":
        yield failure_at("connectivityType", "a regional NAT gateway is public")
    for name in ("subnetId", "allocationId"):
        if inputs.get(name) is not None:
            yield failure_at(name, "a regional NAT gateway does not support it: leave it out")


def _border_group(inputs: Inputs) -> Iterable[CheckFailure]:
    group = "ipv6CidrBlockNetworkBorderGroup"
    if inputs.get(group) is not None and inputs.get("assignGeneratedIpv6CidrBlock") is None:
        yield failure_at(group, "it requires assignGeneratedIpv6CidrBlock, which is missing")


def _ports(inputs: Inputs) -> Iterable[CheckFailure]:
    protocol = inputs.get("ipProtocol", inputs.get("protocol"))
    low, high = inputs.get("fromPort"), inputs.get("toPort")
    if protocol in ("-1", "all"):
        if any(isinstance(port, int) and port not in (0, -1) for port in (low, high)):
            yield failure_at("fromPort", "the protocol -1 means every port: leave the ports out")
    elif protocol in ("tcp", "udp") and (low is None or high is None):
        yield failure_at("fromPort", f"the protocol {protocol} needs fromPort and toPort")
    elif protocol in ICMP:
        return  # a type and a code, -1 for all
    elif isinstance(low, int) and isinstance(high, int) and not 0 <= low <= high <= LAST_PORT:
        yield failure_at("fromPort", f"{low}-{high} is not a valid range of ports")


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


def _mapped_addresses(attachment: Resource, account: Inventory) -> Iterable[str]:
    for nat in account.all(NAT):
        subnet = account.find((SUBNET,), nat.inputs.get("subnetId") or "")
        if nat.inputs.get("connectivityType") == "private":
            continue  # it has no public address
        vpc = subnet.inputs["vpcId"] if subnet else nat.inputs.get("vpcId")
        if vpc == attachment.inputs.get("vpcId"):
            yield f"Network {attachment.inputs['vpcId']} has some mapped public address(es): {nat.id}"


# -- outputs


def _default_group(vpc: Resource, _account: Inventory) -> Iterable[Resource]:
    group = str(vpc.outputs["defaultSecurityGroupId"])
    inputs = {"vpcId": vpc.id, "name": "default", "description": "default VPC security group"}
    yield Resource(
        token=GROUP, id=group, urn=vpc.urn, inputs=inputs, outputs={**inputs, "id": group},
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


def _group_rule(token: str) -> ResourceType:
    return ResourceType(
        token=token,
        identify=id_with_prefix("sgr"),
        describe=lambda request: {
            "arn": arn("ec2", f"security-group-rule/{request.id}", request.region),
            "securityGroupRuleId": request.id,
        },
        immutable=("securityGroupId",),
        rules=(
            PORTS,
            InputRule("one source of a rule", PERMISSION, _exactly_one(SOURCES, "source")),
            value_rule("IPv4 source of a rule", "cidrIpv4", cidr(version=4), PERMISSION),
            value_rule("IPv6 source of a rule", "cidrIpv6", cidr(version=6), PERMISSION),
        ),
        references=(
            in_groups("securityGroupId", ""),
            in_groups("referencedSecurityGroupId"),
        ),
        unique=("securityGroupId", "ipProtocol", "fromPort", "toPort", *SOURCES),
        unique_code="InvalidPermission.Duplicate",
    )


PORTS = InputRule("ports of a rule", PERMISSION, _ports)
TYPES = (
    ResourceType(
        token=VPC,
        identify=id_with_prefix("vpc"),
        describe=_describe_vpc,
        companions=_default_group,
        defaults={"instanceTenancy": "default", "enableDnsSupport": True},
        immutable=("cidrBlock", "instanceTenancy", "region", "ipv4IpamPoolId"),
        enums={"instanceTenancy": ("default", "dedicated")},
        rules=(
            value_rule("size of a VPC", "cidrBlock", VPC_BLOCK, BLOCKS),
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
        rules=(value_rule("size of a subnet", "cidrBlock", VPC_BLOCK, BLOCKS),),
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
        ),
        references=(in_vpc(), *to_gateways("routes.*.")),
    ),
    ResourceType(
        token=ROUTE,
        identify=lambda request: f"r-{request.inputs['routeTableId']}{request.entropy[:10]}",
        describe=lambda _request: {"origin": "CreateRoute", "state": "active"},
        immutable=("routeTableId", "destinationCidrBlock", "destinationIpv6CidrBlock", "region"),
        rules=(
            InputRule("target of a route", CREATE_ROUTE, _exactly_one(TARGETS, "target")),
            InputRule(
                "destination of a route", CREATE_ROUTE, _exactly_one(DESTINATIONS, "destination")
            ),
            value_rule("IPv4 block of a route", DESTINATIONS[0], cidr(version=4), CREATE_ROUTE),
            value_rule("IPv6 block of a route", DESTINATIONS[1], cidr(version=6), CREATE_ROUTE),
        ),
        references=(in_table(), *to_gateways()),
        unique=("routeTableId", *DESTINATIONS),
        unique_code="RouteAlreadyExists",
    ),
    ResourceType(
        token=ASSOCIATION,
        identify=id_with_prefix("rtbassoc"),
        immutable=("subnetId", "gatewayId", "region"),
        references=(
            Reference("subnetId", (SUBNET,), "InvalidSubnetID.NotFound"),
            in_table(in_use_code=DEPENDENCY),
        ),
        unique=("subnetId",),
        unique_code="Resource.AlreadyAssociated",
    ),
    ResourceType(
        token=ENDPOINT,
        identify=id_with_prefix("vpce"),
        describe=lambda request: {
            "arn": arn("ec2", f"vpc-endpoint/{request.id}", request.region),
            "ownerId": AWS_ACCOUNT,
            "state": "available",
            "prefixListId": f"pl-{request.digits('list', 8)}",
        },
        defaults={"vpcEndpointType": "Gateway"},
        immutable=("vpcId", "serviceName", "vpcEndpointType", "region"),
        rules=(InputRule("region of an endpoint", "AWS PrivateLink Guide", _endpoint_service),),
        references=(
            in_vpc(), in_subnets("subnetIds.*"), in_groups("securityGroupIds.*"),
            in_table("routeTableIds.*", spelling="Id"),
        ),
    ),
    ResourceType(
        token="aws:ec2/vpcEndpointRouteTableAssociation:VpcEndpointRouteTableAssociation",  # noqa: S106
        identify=lambda request: f"a-{request.inputs['vpcEndpointId']}{request.entropy[:10]}",
        immutable=("routeTableId", "vpcEndpointId", "region"),
        references=(
            in_table(spelling="Id"), Reference("vpcEndpointId", (ENDPOINT,), "InvalidVpcEndpointId.NotFound"),
        ),
    ),
    ResourceType(
        token=GROUP,
        identify=id_with_prefix("sg"),
        describe=ec2("security-group"),
        defaults={"description": "Managed by Pulumi"},
        naming=Naming(max_length=255),
        immutable=("vpcId", "description", "namePrefix", "region"),
        rules=(
            value_rule(
                "name of a security group", "name",
                matches(r"(?!sg-).*", "begins with sg-, which is for ids"),
                "EC2 API, CreateSecurityGroup",
            ),
        ),
        references=(in_vpc(),),
        unique=("vpcId", "name"),
        unique_code="InvalidGroup.Duplicate",
    ),
    _group_rule(INGRESS),
    _group_rule(EGRESS),
    ResourceType(
        token=GROUP_RULE,
        identify=id_with_prefix("sgrule"),
        describe=lambda request: {"securityGroupRuleId": f"sgr-0{request.digits('rule', 16)}"},
        immutable=("securityGroupId", "type", "protocol", "fromPort", "toPort", "cidrBlocks",
                   "sourceSecurityGroupId", "self", "region"),
        enums={"type": ("ingress", "egress")},
        rules=(PORTS,),
        references=(in_groups("securityGroupId", ""), in_groups("sourceSecurityGroupId")),
    ),
)  # fmt: skip
