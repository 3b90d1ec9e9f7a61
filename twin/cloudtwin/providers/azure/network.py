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
    in_range,
    is_known,
    lies_in,
    objects_at,
    one_of_values,
    overlap,
    section,
    value_rule,
)
from cloudtwin.providers.inventory import Inventory, Resource, items_at, values_at
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
from cloudtwin.providers.protocol.values import PropertyValue
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
GROUP_DOCS = "Network security groups documentation"
MAX_ADDRESSES, LAST_PORT = 16, 65535
# Virtual Network FAQ: multicast, broadcast, loopback, link-local and internal DNS.
RESERVED_BLOCKS = (
    "224.0.0.0/4",
    "255.255.255.255/32",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "168.63.129.16/32",
)
PORTS = (("sourcePortRange", ""), ("sourcePortRanges", ".*"), ("destinationPortRange", ""),
         ("destinationPortRanges", ".*"))  # fmt: skip
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


def blocks_of(subnet: Inputs) -> list[PropertyValue]:
    """Return the address blocks of a subnet, which has one block or a list."""
    return [*values_at("addressPrefix", subnet), *values_at("addressPrefixes.*", subnet)]


def _has_block(inputs: Inputs) -> Iterable[CheckFailure]:
    names = ("addressPrefix", "addressPrefixes", "ipamPoolPrefixAllocations")
    if not any(inputs.get(name) for name in names):
        yield failure_at("addressPrefix", "a subnet needs an address block")


def _space(inputs: Inputs) -> Iterable[CheckFailure]:
    blocks = [block for _, block in items_at("addressSpace.addressPrefixes.*", inputs)]
    for number, block in enumerate(blocks):
        path = f"addressSpace.addressPrefixes[{number}]"
        if any(overlap(block, reserved) for reserved in RESERVED_BLOCKS):
            yield failure_at(path, f"{block} is reserved")
        for other in blocks[:number]:
            if overlap(block, other):
                yield failure_at(path, f"{block} overlaps with {other}")


def _in_network(request: ResourceRequest) -> Iterable[str]:
    vnet = request.account.find((NETWORK,), parent_of(request.id))
    space = section(vnet.inputs, "addressSpace").get("addressPrefixes") or () if vnet else ()
    for block in blocks_of(request.inputs) if space else ():
        if not any(lies_in(block, prefix) for prefix in space):
            name = vnet.name if vnet else ""
            yield f"{block} is not in the address space of {name}: {', '.join(space)}"


def _overlaps_none(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each other subnet of the network that has some of the same addresses."""
    for other in filter(is_child_of(parent_of(request.id)), request.others(SUBNET)):
        for block in blocks_of(request.inputs):
            if any(overlap(block, other_block) for other_block in blocks_of(other.inputs)):
                yield f"{block} overlaps with the subnet {other.name}"


def _associated_in_location(request: ResourceRequest) -> Iterable[str]:
    """Yield an error if a subnet's NAT gateway, route table or security group is not in the location of its network."""
    vnet = request.account.find((NETWORK,), parent_of(request.id))
    for name in ("natGateway", "routeTable", "networkSecurityGroup"):
        part = request.account.find((), section(request.inputs, name).get("id") or "")
        if vnet and part and _location(part) != _location(vnet):
            yield f"{part.id} and the network {vnet.name} are not in the same location"


def _location(resource: Resource) -> str:
    return str(resource.inputs.get("location")).replace(" ", "").lower()


def _subnets_fit(request: ResourceRequest) -> Iterable[str]:
    """Yield an error for each subnet outside the address space of its network."""
    space = section(request.inputs, "addressSpace").get("addressPrefixes") or ()
    for subnet in filter(is_child_of(request.id), request.others(SUBNET)):
        for block in blocks_of(subnet.inputs) if space else ():
            if not any(lies_in(block, prefix) for prefix in space):
                yield f"the address space has active allocations and cannot be reduced: {subnet.name} has {block}"


def _standard(inputs: Inputs) -> Iterable[CheckFailure]:
    name = section(inputs, "sku").get("name")
    if name == "Standard" and inputs.get("publicIPAllocationMethod") == "Dynamic":
        yield failure_at("publicIPAllocationMethod", "a Standard address must be Static")


def _gateway_sku(inputs: Inputs) -> Iterable[CheckFailure]:
    if section(inputs, "sku").get("name") is None:
        yield failure_at("sku.name", "a NAT gateway needs a SKU: Standard")


def _gateway_zones(inputs: Inputs) -> Iterable[CheckFailure]:
    zones = inputs.get("zones")
    if (
        section(inputs, "sku").get("name") == "Standard"
        and isinstance(zones, list)
        and len(zones) > 1
    ):
        yield failure_at("zones", "a Standard NAT gateway is in one zone at most")


def _gateway_addresses(inputs: Inputs) -> Iterable[CheckFailure]:
    addresses = inputs.get("publicIpAddresses")
    if isinstance(addresses, list) and len(addresses) > MAX_ADDRESSES:
        yield failure_at(
            "publicIpAddresses", f"a NAT gateway has at most {MAX_ADDRESSES} addresses"
        )


def _free_addresses(request: ResourceRequest) -> Iterable[str]:
    own = {str(value).lower() for value in values_at("publicIpAddresses.*.id", request.inputs)}
    for other in request.others(GATEWAY):
        for address in values_at("publicIpAddresses.*.id", other.inputs):
            if str(address).lower() in own:
                yield f"{address} is already used by the NAT gateway {other.name}"


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


def _port_error(value: object) -> str | None:
    """Return the reason why text is not a port, a range of ports or `*`."""
    text = str(value)
    if text == "*":
        return None
    low, _, high = text.partition("-")
    ports = [int(port) for port in (low, high or low) if port.isascii() and port.isdigit()]
    is_valid = len(ports) == 2 and ports[0] <= ports[1] <= LAST_PORT
    return None if is_valid else f"{text!r} is not a port, a range of ports or *"


def _security_rules(inputs: Inputs) -> Iterable[CheckFailure]:
    rules = objects_at("securityRules", inputs)
    names = [rule.get("name") for _, rule in rules]
    positions = [(rule.get("direction"), rule.get("priority")) for _, rule in rules]
    for (path, rule), position in zip(rules, positions, strict=True):
        if names.count(rule.get("name")) > 1:
            yield failure_at(f"{path}.name", f"two rules have the name {rule.get('name')!r}")
        if positions.count(position) > 1:
            yield failure_at(
                f"{path}.priority", f"two {position[0]} rules have the priority {position[1]}"
            )
        for end in ("source", "destination"):
            prefixes = (
                f"{end}AddressPrefix",
                f"{end}AddressPrefixes",
                f"{end}ApplicationSecurityGroups",
            )
            for options in (prefixes, (f"{end}PortRange", f"{end}PortRanges")):
                if not any(rule.get(option) for option in options):
                    yield failure_at(
                        path, f"Security rule must specify either {' or '.join(options)}"
                    )


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
        rules=(
            value_rule("blocks of a network", "addressSpace.addressPrefixes.*", _block, VNET_DOCS),
            InputRule("address space of a network", "Virtual Network FAQ", _space),
        ),
        preconditions=(
            Precondition("subnets in the address space", VNET_DOCS, "InUsePrefixCannotBeDeleted",
                         _subnets_fit),
        ),
    ),
    arm_type(
        SUBNET, SUBNET_PATH, 80,
        rules=(
            value_rule("block of an Azure subnet", "addressPrefix", _subnet_block, "Virtual Network FAQ"),
            value_rule("blocks of an Azure subnet", "addressPrefixes.*", _subnet_block, "Virtual Network FAQ"),
            InputRule("addresses of a subnet", VNET_DOCS, _has_block),
        ),
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
            Precondition("location of a subnet's associations", VNET_DOCS, "InvalidResourceReference",
                         _associated_in_location),
        ),
        deletion_guards=(
            DeletionGuard("subnet of remaining pools", "Azure Resource Manager, subnets in use",
                          "InUseSubnetCannotBeDeleted", _pools_in_subnet),
        ),
    ),
    arm_type(
        GATEWAY, "Microsoft.Network/natGateways/{natGatewayName}", 80, "location", "zones",
        describe=_guid,
        rules=(
            InputRule("SKU of a gateway", NAT_DOCS, _gateway_sku),
            InputRule("zone of a gateway", NAT_DOCS, _gateway_zones),
            InputRule("addresses of a gateway", NAT_DOCS, _gateway_addresses),
            value_rule("idle timeout of a gateway", "idleTimeoutInMinutes", in_range(4, 120, "minutes"), NAT_DOCS),
        ),
        references=(
            resource_reference("publicIpAddresses.*.id", ADDRESS, "PublicIPAddressCannotBeDeleted"),
        ),
        preconditions=(
            Precondition("address of a gateway", NAT_DOCS, "NatGatewayRequiresStandardPublicIP",
                         _gateway_address),
            Precondition("one gateway per public address", NAT_DOCS, "PublicIPAddressInUse", _free_addresses),
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
        rules=(
            InputRule("rules of a security group", GROUP_DOCS, _security_rules),
            value_rule("priority of a rule", "securityRules.*.priority", in_range(100, 4096, "as priority"),
                       GROUP_DOCS),
            *(value_rule(f"{name} of a rule", f"securityRules.*.{name}{suffix}", _port_error, GROUP_DOCS)
              for name, suffix in PORTS),
        ),
    ),
)  # fmt: skip
