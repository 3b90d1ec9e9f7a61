"""Azure networks, and resource groups. Pure.

Sources: Azure Resource Manager, "Naming rules and restrictions for Azure resources"; Virtual Network
and NAT Gateway documentation; error codes of the Network REST API. Read 2026-11.
"""

import ipaddress
import re
from collections.abc import Iterable

from twin.clouds.azure.common import GROUP, ROOT, arm, named, parent_of, text_is
from twin.clouds.model import Demand, Inputs, Making, Naming, Reference, ResourceType, Rule
from twin.clouds.rules import at, lies_in
from twin.clouds.wire.check import Mistake

NETWORK = "azure-native:network:VirtualNetwork"
SUBNET = "azure-native:network:Subnet"
GATEWAY = "azure-native:network:NatGateway"
ADDRESS = "azure-native:network:PublicIPAddress"
GUARD = "azure-native:network:NetworkSecurityGroup"
NAMES = "Resource Manager, naming rules"
VNET_PATH = "Microsoft.Network/virtualNetworks/{virtualNetworkName}"
SUBNET_PATH = f"{VNET_PATH}/subnets/{{subnetName}}"
SMALLEST_SUBNET = 29
PLAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9_])?")
GROUP_NAME = re.compile(r"[-\w._()]*[-\w_()]")


def plain_name(property_name: str, pattern: re.Pattern[str] = PLAIN, shortest: int = 1) -> Rule:
    """Return the rule for a name of letters, digits and a few marks."""

    def broken(inputs: Inputs) -> Iterable[Mistake]:
        name = inputs.get(property_name)
        if not isinstance(name, str):
            return
        if len(name) < shortest:
            yield at(property_name, f"{name!r} has fewer than {shortest} characters")
        elif not pattern.fullmatch(name):
            yield at(property_name, f"{name!r} holds characters that no such name may")

    return Rule(name=f"name in {property_name}", source=NAMES, broken=broken)


def blocks(path: str, values: object) -> Iterable[Mistake]:
    """Refuse what is no IPv4 block."""
    for value in values if isinstance(values, list) else [values]:
        if text_is(value):
            try:
                ipaddress.ip_network(str(value))
            except ValueError as error:
                yield at(path, f"{value!r} is no CIDR block: {error}")


def _vnet_blocks(inputs: Inputs) -> Iterable[Mistake]:
    space = inputs.get("addressSpace") or {}
    yield from blocks("addressSpace.addressPrefixes", space.get("addressPrefixes") or [])


def _subnet_block(inputs: Inputs) -> Iterable[Mistake]:
    given = inputs.get("addressPrefix")
    faults = list(blocks("addressPrefix", given))
    yield from faults
    if (
        text_is(given)
        and not faults
        and ipaddress.ip_network(str(given)).prefixlen > SMALLEST_SUBNET
    ):
        yield at("addressPrefix", f"{given} is smaller than /{SMALLEST_SUBNET}")


def _in_network(making: Making) -> Iterable[str]:
    vnet = making.world.find((NETWORK,), parent_of(making.id))
    mine = ipaddress.ip_network(str(making.inputs.get("addressPrefix") or "0.0.0.0/32"))
    space = (vnet.inputs.get("addressSpace") or {}).get("addressPrefixes") or () if vnet else ()
    if space and not any(lies_in(mine, each) for each in space):
        yield f"{mine} is not in the address space of {vnet.name if vnet else ''}: {', '.join(space)}"
    for other in making.world.all(SUBNET):
        beside = parent_of(other.id).lower() == parent_of(making.id).lower()
        block = other.inputs.get("addressPrefix")
        if (
            beside
            and other.id.lower() != making.id.lower()
            and block
            and mine.overlaps(ipaddress.ip_network(str(block)))
        ):
            yield f"{mine} overlaps with the subnet {other.name}"


def _standard(inputs: Inputs) -> Iterable[Mistake]:
    name = (inputs.get("sku") or {}).get("name")
    if name == "Standard" and inputs.get("publicIPAllocationMethod") == "Dynamic":
        yield at("publicIPAllocationMethod", "a Standard address is Static")


def _gateway_address(making: Making) -> Iterable[str]:
    for each in making.inputs.get("publicIpAddresses") or ():
        found = making.world.find((ADDRESS,), str(each.get("id")))
        if found and (found.inputs.get("sku") or {}).get("name") != "Standard":
            yield f"a NAT gateway takes Standard addresses only; {found.name} is none"


def _gateway_sku(inputs: Inputs) -> Iterable[Mistake]:
    if (inputs.get("sku") or {}).get("name") is None:
        yield at("sku.name", "a NAT gateway has a SKU: Standard")


def held(path: str, to: str, code: str) -> Reference:
    """Return a reference that holds what it names."""
    return Reference(path=path, to=(to,), code="InvalidResourceReference", holds=code)


TYPES = (
    ResourceType(
        token=GROUP,
        identify=lambda making: f"{ROOT}/resourceGroups/{making.inputs['resourceGroupName']}",
        describe=lambda _making: {"properties": {"provisioningState": "Succeeded"}},
        naming=Naming(property="resourceGroupName", longest=90),
        immutable=("location",),
        rules=(plain_name("resourceGroupName", GROUP_NAME),),
        unique_code="Conflict",
    ),
    ResourceType(
        token=NETWORK,
        identify=arm(VNET_PATH),
        describe=lambda making: {"resourceGuid": making.digits("guid", 32)},
        naming=Naming(property="virtualNetworkName", longest=64),
        immutable=named(VNET_PATH, "location"),
        parent=parent_of,
        rules=(
            plain_name("virtualNetworkName", shortest=2),
            Rule(
                name="blocks of a network",
                source="Virtual Network documentation",
                broken=_vnet_blocks,
            ),
        ),
        unique_code="Conflict",
    ),
    ResourceType(
        token=SUBNET,
        identify=arm(SUBNET_PATH),
        naming=Naming(property="subnetName", longest=80),
        immutable=named(SUBNET_PATH),
        parent=parent_of,
        rules=(
            plain_name("subnetName"),
            Rule(
                name="block of an Azure subnet", source="Virtual Network FAQ", broken=_subnet_block
            ),
        ),
        references=(
            held("natGateway.id", GATEWAY, "InUseNatGatewayCannotBeDeleted"),
            held("networkSecurityGroup.id", GUARD, "InUseNetworkSecurityGroupCannotBeDeleted"),
        ),
        demands=(
            Demand(
                name="subnet in its network",
                source="Virtual Network FAQ",
                code="NetcfgSubnetRangeOutsideVnet",
                broken=_in_network,
            ),
        ),
        unique_code="Conflict",
    ),
    ResourceType(
        token=GATEWAY,
        identify=arm("Microsoft.Network/natGateways/{natGatewayName}"),
        describe=lambda making: {"resourceGuid": making.digits("guid", 32)},
        naming=Naming(property="natGatewayName", longest=80),
        immutable=named("{natGatewayName}", "resourceGroupName", "location", "zones"),
        parent=parent_of,
        rules=(
            plain_name("natGatewayName"),
            Rule(name="SKU of a gateway", source="NAT Gateway documentation", broken=_gateway_sku),
        ),
        references=(held("publicIpAddresses.*.id", ADDRESS, "PublicIPAddressCannotBeDeleted"),),
        demands=(
            Demand(
                name="address of a gateway",
                source="NAT Gateway documentation",
                code="NatGatewayRequiresStandardPublicIP",
                broken=_gateway_address,
            ),
        ),
        unique_code="Conflict",
    ),
    ResourceType(
        token=ADDRESS,
        identify=arm("Microsoft.Network/publicIPAddresses/{publicIpAddressName}"),
        describe=lambda making: {
            "ipAddress": f"198.51.100.{int(making.digits('ip', 2), 16)}",  # RFC 5737: documentation
            "resourceGuid": making.digits("guid", 32),
        },
        naming=Naming(property="publicIpAddressName", longest=80),
        immutable=named("{publicIpAddressName}", "resourceGroupName", "location", "zones", "sku"),
        parent=parent_of,
        rules=(
            plain_name("publicIpAddressName"),
            Rule(
                name="allocation of an address",
                source="Public IP addresses documentation",
                broken=_standard,
            ),
        ),
        unique_code="Conflict",
    ),
    ResourceType(
        token=GUARD,
        identify=arm("Microsoft.Network/networkSecurityGroups/{networkSecurityGroupName}"),
        describe=lambda making: {"resourceGuid": making.digits("guid", 32)},
        naming=Naming(property="networkSecurityGroupName", longest=80),
        immutable=named("{networkSecurityGroupName}", "resourceGroupName", "location"),
        parent=parent_of,
        rules=(plain_name("networkSecurityGroupName"),),
        unique_code="Conflict",
    ),
)
