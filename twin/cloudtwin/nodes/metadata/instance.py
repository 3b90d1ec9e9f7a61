"""Cloud identifiers and properties of a machine.

The ids have each cloud's format, since programs parse them: an autoscaler reads the instance id from a Node's
provider id. They are derived from the machine's name, which is unique in a twin.
"""

import hashlib
import uuid
from typing import Any

from cloudtwin import accounts
from cloudtwin.nodes.model import MachineSpec, Role

NAMESPACE = uuid.UUID("5f8f4d5e-3a43-4c1a-9a50-6a0b6a6f3c51")  # any constant


def instance_id(spec: MachineSpec) -> str:
    """Return the machine's id in its cloud: `i-` and 17 hexadecimal digits, or a UUID."""
    if spec.cloud == "azure":
        return str(uuid.uuid5(NAMESPACE, spec.name))
    return f"i-0{hashlib.sha256(spec.name.encode()).hexdigest()[:16]}"


def provider_id(spec: MachineSpec) -> str:
    """Return the Node's `spec.providerID`; empty without a cloud."""
    if spec.cloud == "aws":
        return f"aws:///{spec.zone}/{instance_id(spec)}"
    if spec.cloud == "azure":
        return f"azure://{azure_resource(spec)}"
    return ""


def azure_resource(spec: MachineSpec) -> str:
    """Return the resource id of a machine in its scale set; the resource group is in lower case, as in AKS."""
    number = spec.name.rpartition("-")[2]
    index = number if number.isdigit() else "0"
    group = resource_group(spec).lower()
    return (
        f"/subscriptions/{accounts.AZURE_SUBSCRIPTION}/resourceGroups/{group}/providers"
        f"/Microsoft.Compute/virtualMachineScaleSets/{scale_set(spec)}/virtualMachines/{index}"
    )


def scale_set(spec: MachineSpec) -> str:
    """Return the name of the scale set of a machine's pool."""
    return accounts.scale_set(spec.group or "pool")


def resource_group(spec: MachineSpec) -> str:
    """Return the resource group of the nodes, which AKS creates; a machine without a pool has no cluster."""
    return spec.resource_group or accounts.node_resource_group(
        "cloudtwin", "none", spec.region or "local"
    )


def facts(spec: MachineSpec, address: str) -> dict[str, Any]:
    """Return the properties that the machine's agent needs, as a JSON object."""
    return {
        "name": spec.name,
        "cloud": spec.cloud,
        "gpus": spec.gpus if spec.role is Role.GPU else 0,
        "instance_id": instance_id(spec),
        "instance_type": spec.instance_type,
        "zone": spec.zone,
        "region": spec.region,
        "spot": spec.spot,
        "group": spec.group,
        "address": address,
        "scale_set": scale_set(spec),
        "resource_group": resource_group(spec),
        "provider_id": provider_id(spec),
    }
