"""VPC endpoints. Pure.

Sources: EC2 API Reference (CreateVpcEndpoint), AWS PrivateLink Guide. Read 2026-11.
"""

from collections.abc import Iterable

from cloudtwin.accounts import AWS_ACCOUNT
from cloudtwin.providers.aws.common import arn, id_with_prefix
from cloudtwin.providers.aws.network import (
    ENDPOINT,
    SUBNET,
    VPC,
    in_groups,
    in_subnets,
    in_table,
    in_vpc,
)
from cloudtwin.providers.aws.policies import document_rule
from cloudtwin.providers.conditions import failure_at
from cloudtwin.providers.inventory import Resource
from cloudtwin.providers.model import (
    InputRule,
    Inputs,
    Precondition,
    Reference,
    ResourceRequest,
    ResourceType,
)
from cloudtwin.providers.protocol.values import PropertyValue
from cloudtwin.providers.schema.check import CheckFailure

CREATE_ENDPOINT = "EC2 API, CreateVpcEndpoint"
GATEWAY_SERVICES = ("s3", "dynamodb", "s3express")
# Type of an endpoint -> the inputs that it does not support.
UNSUPPORTED = {
    "Gateway": ("subnetIds", "securityGroupIds", "privateDnsEnabled"),
    "Interface": ("routeTableIds",),
}


def _endpoint_service(inputs: Inputs) -> Iterable[CheckFailure]:
    name, region = inputs.get("serviceName"), inputs.get("region")
    if isinstance(name, str) and isinstance(region, str):
        prefix = f"com.amazonaws.{region}."
        if name.startswith("com.amazonaws.") and not name.startswith(prefix):
            yield failure_at(
                "serviceName", f"{name!r} is not in {region}: it must begin with {prefix}"
            )


def _endpoint_type(inputs: Inputs) -> Iterable[CheckFailure]:
    name, kind = inputs.get("serviceName"), inputs.get("vpcEndpointType", "Gateway")
    service = str(name).rpartition(".")[2] if str(name).startswith("com.amazonaws.") else ""
    if kind == "Gateway" and service and service not in GATEWAY_SERVICES:
        yield failure_at(
            "vpcEndpointType",
            "Endpoint type (Gateway) does not match available service types ([Interface])",
        )
    for name in UNSUPPORTED.get(kind, ()):
        if inputs.get(name):
            yield failure_at(name, f"a {kind} endpoint does not support it: leave it out")


# -- preconditions


def _dns_attributes(request: ResourceRequest) -> Iterable[str]:
    vpc = request.find(VPC, "vpcId")
    if not (vpc and request.inputs.get("privateDnsEnabled")):
        return
    if not (vpc.inputs.get("enableDnsSupport", True) and vpc.inputs.get("enableDnsHostnames")):
        yield (
            "Enabling private DNS requires both enableDnsSupport and enableDnsHostnames VPC attributes "
            f"set to true for {vpc.id}"
        )


def _one_subnet_per_zone(request: ResourceRequest) -> Iterable[str]:
    zones: set[PropertyValue] = set()
    for value in request.inputs.get("subnetIds") or ():
        subnet = request.account.find((SUBNET,), value)
        if subnet and (zone := subnet.outputs["availabilityZone"]) in zones:
            yield f"Found another VPC endpoint subnet in the availability zone of {subnet.id}: {zone}"
        elif subnet:
            zones.add(zone)


def _same_service(request: ResourceRequest) -> list[Resource]:
    """Return the other endpoints of the service in the VPC."""
    keys = ("vpcId", "serviceName")
    return [
        other
        for other in request.others(ENDPOINT)
        if all(other.inputs.get(key) == request.inputs.get(key) for key in keys)
    ]


def _free_tables(request: ResourceRequest) -> Iterable[str]:
    for other in _same_service(request):
        for table in other.inputs.get("routeTableIds") or ():
            if table in (request.inputs.get("routeTableIds") or ()):
                prefix_list = other.outputs.get("prefixListId")
                yield f"route table {table} already has a route with destination-prefix-list-id {prefix_list}"


def _free_domain(request: ResourceRequest) -> Iterable[str]:
    for other in _same_service(request):
        if request.inputs.get("privateDnsEnabled") and other.inputs.get("privateDnsEnabled"):
            yield (
                "private-dns-enabled cannot be set because there is already a conflicting DNS domain for "
                f"{request.inputs['serviceName']} in the VPC {request.inputs['vpcId']}: {other.id}"
            )


TYPES = (
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
        rules=(
            InputRule("region of an endpoint", "AWS PrivateLink Guide", _endpoint_service),
            InputRule("type of an endpoint", CREATE_ENDPOINT, _endpoint_type),
            document_rule("policy of an endpoint", "policy", "endpoint"),
        ),
        preconditions=(
            Precondition("DNS of the VPC of an endpoint", CREATE_ENDPOINT, "InvalidParameter", _dns_attributes),
            Precondition(
                "zones of an endpoint", CREATE_ENDPOINT, "DuplicateSubnetsInSameZone", _one_subnet_per_zone
            ),
            Precondition("route tables of an endpoint", CREATE_ENDPOINT, "RouteAlreadyExists", _free_tables),
            Precondition("domain of an endpoint", CREATE_ENDPOINT, "InvalidParameter", _free_domain),
        ),
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
)  # fmt: skip
