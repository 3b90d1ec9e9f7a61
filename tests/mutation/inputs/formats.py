"""Formats of ids, ARNs and CIDR blocks that the API references define and the service models do not."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.mutation.inputs.wrong_values import leaves_and_branches

ARN = re.compile(r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:(\d{12}|aws)?:[^\s]+")
# Name of an input, without its plural -> prefix of the ids.
PREFIXES: Mapping[str, str] = {
    "vpcId": "vpc", "subnetId": "subnet", "routeTableId": "rtb", "natGatewayId": "nat", "allocationId": "eipalloc",
    "securityGroupId": "sg", "referencedSecurityGroupId": "sg", "fileSystemId": "fs",
}  # fmt: skip


def reasons(inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the inputs that do not have the format that their names require."""
    for path, value in leaves_and_branches(inputs):
        name = next((step for step in reversed(path) if isinstance(step, str)), "")
        if isinstance(value, str) and not _fits(name.removesuffix("s"), value):
            yield f"{name} {value!r} does not have the required format"


def _fits(name: str, value: str) -> bool:
    if name.lower().endswith(("cidr", "cidrblock", "cidripv4", "cidripv6")):
        return _is_block(value)
    if name.endswith("Arn"):
        return ARN.fullmatch(value) is not None
    if name in PREFIXES:
        return re.fullmatch(rf"{PREFIXES[name]}-([0-9a-f]{{8}}|[0-9a-f]{{17}})", value) is not None
    return True


def _is_block(value: str) -> bool:
    try:
        ipaddress.ip_network(value)
    except ValueError:
        return False
    return "/" in value
