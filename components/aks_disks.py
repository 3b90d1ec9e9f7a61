"""The disks that AKS creates for a stack, and their prices; `components.cost` calls it.

A stack does not set the type of its OS disks. AKS then takes an ephemeral one, which is part of the machine's price, if
the machine's own disks can hold it, and otherwise a managed Premium SSD. Sources: AKS documentation, "Storage options
for applications", "Ephemeral OS disk"; Azure/AKS #2672 and #5973.
"""

from collections.abc import Collection
from dataclasses import dataclass

from cloudfacts import azure, prices

# Classes that AKS creates: AKS documentation, "Storage options for applications", "Storage classes".
_TYPE_OF_CLASS = {
    None: "StandardSSD",
    "default": "StandardSSD",
    "managed-csi": "StandardSSD",
    "managed-csi-premium": "Premium",
    "managed-premium": "Premium",
}
_TITLES = {"StandardSSD": "Standard SSD", "Premium": "Premium SSD"}


@dataclass(frozen=True)
class Disk:
    """A disk of a stack.

    Attributes:
        name: its kind and its size.
        usd_per_hour: its price; None if its kind or its price is unknown.
        sources: sources of the price in the table.
    """

    name: str
    usd_per_hour: float | None
    sources: tuple[prices.Source, ...] = ()


def os_disk(vm_size: str, gib: int) -> Disk:
    """Return the OS disk of a machine; its kind is unknown for a VM size that the facts do not contain."""
    machine = azure.VM_SIZES.get(vm_size)
    if machine is None:
        return Disk(f"disk of {gib} GiB", None)
    if gib <= machine.local_disk_gib:
        return Disk(f"ephemeral disk of {gib} GiB", 0.0)
    return _managed("Premium", "LRS", gib)


def volume(storage_class: str | None, gib: int, zones: Collection[str]) -> Disk:
    """Return the disk of a claim.

    Args:
        storage_class: StorageClass of the claim; None for the cluster's default.
        gib: size in GiB.
        zones: zones of the cluster's nodes. In several zones, the classes of AKS create zone-redundant disks.
    """
    kind = _TYPE_OF_CLASS.get(storage_class)
    if kind is None:
        return Disk(f"volume of {gib} GiB, StorageClass {storage_class}", None)
    return _managed(kind, "ZRS" if len(zones) > 1 else "LRS", gib)


def _managed(kind: str, redundancy: str, gib: int) -> Disk:
    suffix = f" {redundancy}" if redundancy == "ZRS" else ""
    sku = f"{kind}_{redundancy}"
    price = prices.disk(sku, gib)
    sources = () if price is None else (prices.disk_source(sku),)
    return Disk(f"{_TITLES[kind]}{suffix} of {gib} GiB", price, sources)
