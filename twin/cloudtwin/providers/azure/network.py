"""Azure networks, and resource groups. Pure.

Sources: Resource Manager, "Naming rules and restrictions for Azure resources"; Virtual Network and NAT
Gateway documentation; error codes of the Network REST API. Read 2026-11.
"""

from collections.abc import Iterable

from cloudtwin.providers.azure.common import (
    GROUP,
    PLAIN_NAME,
    ROOT,
    arm_type,
    is_child_of,
    name_rule,
    parent_of,
)
from cloudtwin.providers.azure.identity import CLUSTER
from cloudtwin.providers.conditions import (
    block_error,
    block_of,
    failure_at,
    is_known,
    lies_in,
    objects_at,
    one_of_values,
    overlap,
    section,
    value_rule,
)
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

NETWORK, SUBNET = "azure-native:network:VirtualNetwork", "azure-native:network:Subnet"
GATEWAY, ADDRESS = "azure-native:network:NatGateway", "azure-native:network:PublicIPAddress"
ROUTE_TABLE = "azure-native:network:RouteTable"
PRIVATE_ZONE = "azure-native:privatedns:PrivateZone"
SECURITY_GROUP = "azure-native:network:NetworkSecurityGroup"
VNET_PATH = "Microsoft.Network/virtualNetworks/{virtualNetworkName}"
SUBNET_PATH = f"{VNET_PATH}/subnets/{{subnetName}}"
MAX_SUBNET_PREFIX = 29
VNET_DOCS, NAT_DOCS = "Virtual Network documentation", "NAT Gateway documentation"
ROUTE_DOCS = "Virtual network traffic routing"


def _pools_in_subnet(subnet: Resource, subscription: Inventory) -> Iterable[str]:
    """Yield an error for each inline pool in a subnet; AKS keeps pools that the inputs no longer declare."""
    for cluster in subscription.all(CLUSTER):
        for pool in cluster.outputs.get("agentPoolProfiles") or ():
            if str(pool.get("vnetSubnetID")).lower() == subnet.id.lower():
                yield f"{subnet.id} cannot be deleted: the pool {pool.get('name')} of {cluster.id} still uses it"


def _block(value: object) -> str | None:
    """Return the reason why text is not an address block; None if it is valid."""
    return block_error(value) if isinstance(value, str) else None


def _subnet_block(value: object) -> str | None:
    block = block_of(value)
    is_small = block is not None and block.prefixlen > MAX_SUBNET_PREFIX
    return f"{value} is smaller than /{MAX_SUBNET_PREFIX}" if is_small else _block(value)


def _route_block(value: object) -> str | None:
    """Return the reason why text is neither an address block nor a service tag."""
    is_block = isinstance(value, str) and "/" in value
    return block_error(value) if is_block and isinstance(value, str) else None


def _in_network(request: ResourceRequest) -> Iterable[str]:
    vnet = request.account.find((NETWORK,), parent_of(request.id))
    block = request.inputs.get("addressPrefix")
    space = section(vnet.inputs, "addressSpace").get("addressPrefixes") or () if vnet else ()
    if block and space and not any(lies_in(block, prefix) for prefix in space):
        name = vnet.name if vnet else ""
        yield f"{block} is not in the address space of {name}: {', '.join(space)}"


def _overlaps_none(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each other subnet of the network that has some of the same addresses."""
    block = request.inputs.get("addressPrefix")
    for other in filter(is_child_of(parent_of(request.id)), request.others(SUBNET)):
        if overlap(block, other.inputs.get("addressPrefix")):
            yield f"{block} overlaps with the subnet {other.name}"


def _subnets_fit(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each subnet outside the address space of its network."""
    space = section(request.inputs, "addressSpace").get("addressPrefixes") or ()
    for subnet in filter(is_child_of(request.id), request.others(SUBNET)):
        block = subnet.inputs.get("addressPrefix")
        if block and space and not any(lies_in(block, prefix) for prefix in space):
            yield f"the address space has active allocations and cannot be reduced: {subnet.name} has {block}"


def _standard(inputs: Inputs) -> Iterable[CheckFailure]:
    name = section(inputs, "sku").get("name")
    if name == "Standard" and inputs.get("publicIPAllocationMethod") == "Dynamic":
        yield failure_at("publicIPAllocationMethod", "a Standard address must be Static")


def _gateway_sku(inputs: Inputs) -> Iterable[CheckFailure]:
    if section(inputs, "sku").get("name") is None:
        yield failure_at("sku.name", "a NAT gateway needs a SKU: Standard")


def _gateway_address(request: ResourceRequest) -> Iterable[str]:
    for reference in request.inputs.get("publicIpAddresses") or ():
        resource = request.account.find((ADDRESS,), reference.get("id"))
        if resource and section(resource.inputs, "sku").get("name") != "Standard":
            yield f"a NAT gateway takes Standard addresses only, and {resource.name} is not Standard"


def _next_hops(inputs: Inputs) -> Iterable[CheckFailure]:
    for path, route in objects_at("routes", inputs):
        kind, address = route.get("nextHopType"), route.get("nextHopIpAddress")
        address_path = f"{path}.nextHopIpAddress"
        if kind == "VirtualAppliance" and not address:
            yield failure_at(address_path, "a route to a VirtualAppliance needs its address")
        if kind != "VirtualAppliance" and is_known(address):
            reason = f"only a route to a VirtualAppliance has an address, not {kind}"
            yield failure_at(address_path, reason)


def resource_reference(path: str, token: str, in_use_code: str) -> Reference:
    """Return a reference whose target cannot be deleted while the referring resource exists."""
    return Reference(path, (token,), "InvalidResourceReference", in_use_code)


def _guid(request: ResourceRequest) -> dict[str, str]:
    return {"resourceGuid": request.digits("guid", 32)}


TYPES = (
    ResourceType(
        token=GROUP,
        identify=lambda request: f"{ROOT}/resourceGroups/{request.inputs['resourceGroupName']}",
        describe=lambda _request: {"properties": {"provisioningState": "Succeeded"}},
        naming=Naming("resourceGroupName", 90),
        immutable=("location",),
        rules=(name_rule("resourceGroupName", r"[-\w._()]*[-\w_()]"),),
        unique_code="Conflict",
    ),
    arm_type(
        NETWORK, VNET_PATH, 64, "location",
        name=(PLAIN_NAME, 2),
        describe=_guid,
        rules=(value_rule("blocks of a network", "addressSpace.addressPrefixes.*", _block, VNET_DOCS),),
        preconditions=(
            Precondition("subnets in the address space", VNET_DOCS, "InUsePrefixCannotBeDeleted",
                         _subnets_fit),
        ),
    ),
    arm_type(
        SUBNET, SUBNET_PATH, 80,
        rules=(value_rule("block of an Azure subnet", "addressPrefix", _subnet_block,
                          "Virtual Network FAQ"),),
        references=(
            resource_reference("natGateway.id", GATEWAY, "InUseNatGatewayCannotBeDeleted"),
            resource_reference("routeTable.id", ROUTE_TABLE, "InUseRouteTableCannotBeDeleted"),
            resource_reference("networkSecurityGroup.id", SECURITY_GROUP,
                        "InUseNetworkSecurityGroupCannotBeDeleted"),
        ),
        preconditions=(
            Precondition("subnet in its network", "Virtual Network FAQ",
                         "NetcfgSubnetRangeOutsideVnet", _in_network),
            Precondition("subnets of a network do not overlap", "Virtual Network FAQ",
                         "NetcfgSubnetRangesOverlap", _overlaps_none),
        ),
        deletion_guards=(
            DeletionGuard("subnet of kept pools", "Azure Resource Manager, subnets in use",
                          "InUseSubnetCannotBeDeleted", _pools_in_subnet),
        ),
    ),
    arm_type(
        GATEWAY, "Microsoft.Network/natGateways/{natGatewayName}", 80, "location", "zones",
        describe=_guid,
        rules=(InputRule("SKU of a gateway", NAT_DOCS, _gateway_sku),),
        references=(
            resource_reference("publicIpAddresses.*.id", ADDRESS, "PublicIPAddressCannotBeDeleted"),
        ),
        preconditions=(
            Precondition("address of a gateway", NAT_DOCS, "NatGatewayRequiresStandardPublicIP",
                         _gateway_address),
        ),
    ),
    arm_type(
        ADDRESS, "Microsoft.Network/publicIPAddresses/{publicIpAddressName}", 80, "location",
        "zones", "sku",
        describe=lambda request: {
            "ipAddress": f"198.51.100.{int(request.digits('ip', 2), 16)}",  # RFC 5737
            **_guid(request),
        },
        rules=(InputRule("allocation of an address", "Public IP addresses documentation", _standard),),
    ),
    arm_type(
        ROUTE_TABLE, "Microsoft.Network/routeTables/{routeTableName}", 80, "location",
        describe=_guid,
        rules=(
            value_rule("block of a route", "routes.*.addressPrefix", _route_block, ROUTE_DOCS),
            InputRule("next hop of a route", ROUTE_DOCS, _next_hops),
        ),
    ),
    arm_type(
        PRIVATE_ZONE, "Microsoft.Network/privateDnsZones/{privateZoneName}", 253, "location",
        name=(r"([A-Za-z0-9_-]{1,63}\.)+[A-Za-z0-9-]{1,63}", 1), generated=False,
        rules=(
            value_rule("location of a private zone", "location", one_of_values("global", "Global"),
                       "Azure DNS documentation"),
        ),
    ),
    arm_type(
        SECURITY_GROUP, "Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}", 80,
        "location", describe=_guid,
    ),
)  # fmt: skip
