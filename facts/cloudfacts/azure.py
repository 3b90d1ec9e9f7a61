"""Locations and virtual machine sizes of Azure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cloudfacts.data import load

MIB_PER_GIB = 1024
_GPU_SERIES = re.compile(r"Standard_N[CDGV]", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Location:
    """A region of Azure.

    Attributes:
        name: name, such as `westeurope`.
        has_zones: True if it has availability zones.
        restricted: True if only subscriptions with Microsoft's approval can use it.
    """

    name: str
    has_zones: bool
    restricted: bool = False


@dataclass(frozen=True, kw_only=True)
class VmSize:
    """The hardware of a virtual machine size.

    Attributes:
        name: name, such as `Standard_NC24ads_A100_v4`.
        vcpus: virtual CPUs.
        memory_mib: memory in MiB.
        local_disk_gib: size in GiB of the largest OS disk that the machine's own disks can hold; 0 if they hold none.
        gpus: GPUs that the operating system sees, whole or partitioned.
        gpu_model: model, such as `A100`; empty without GPUs.
        gpu_memory_mib: memory of one GPU in MiB.
        gpu_share: fraction of a physical GPU that each GPU is; 1.0 for whole GPUs.
    """

    name: str
    vcpus: int
    memory_mib: int
    local_disk_gib: int = 0
    gpus: int = 0
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    gpu_share: float = 1.0


def retired(vm_size: str) -> str | None:
    """Return the time at which a size was retired, such as `in 2023`; None if it was not."""
    return next((when for pattern, when in _RETIRED.items() if re.match(pattern, vm_size)), None)


def has_gpus(vm_size: str) -> bool:
    """Return True if a size has GPUs; outside the table, the families NC, ND, NG and NV have them, and NP has FPGAs."""
    size = VM_SIZES.get(vm_size)
    return size.gpus > 0 if size else _GPU_SERIES.match(vm_size) is not None


def _plain_sizes(table: Mapping[str, Any]) -> Iterator[VmSize]:
    """Yield the sizes of the series without GPUs."""
    vcpus: list[int] = table["vcpus_of_series"]
    for series, gib in table["memory_gib_per_vcpu_of_series"].items():
        local_disks = table["local_disk_gib_of_series"].get(series, [0] * len(vcpus))
        for count, local_disk in zip(vcpus, local_disks, strict=True):
            yield VmSize(
                name=series.format(n=count),
                vcpus=count,
                memory_mib=count * gib * MIB_PER_GIB,
                local_disk_gib=local_disk,
            )


def _gpu_size(
    name: str,
    vcpus: int,
    gib: int,
    local_disk_gib: int,
    gpus: int,
    model: str,
    gpu_gib: int,
    partitions: int = 1,
) -> VmSize:
    """Return a size with GPUs from its row."""
    return VmSize(
        name=name,
        vcpus=vcpus,
        memory_mib=gib * MIB_PER_GIB,
        local_disk_gib=local_disk_gib,
        gpus=gpus,
        gpu_model=model,
        gpu_memory_mib=gpu_gib * MIB_PER_GIB,
        gpu_share=1 / partitions,
    )


def _vm_sizes() -> Iterator[VmSize]:
    """Yield all sizes of the table."""
    yield from _plain_sizes(_TABLE)
    for name, (vcpus, gib, local_disk) in _TABLE["others"].items():
        yield VmSize(
            name=name, vcpus=vcpus, memory_mib=gib * MIB_PER_GIB, local_disk_gib=local_disk
        )
    for name, row in _TABLE["gpu_sizes"].items():
        yield _gpu_size(name, *row)


_TABLE = load("azure_vm_sizes")
_RETIRED: Mapping[str, str] = _TABLE["retired_patterns"]

LOCATIONS: Mapping[str, Location] = {
    name: Location(name=name, has_zones=facts["zones"], restricted=facts.get("restricted", False))
    for name, facts in load("azure_locations")["locations"].items()
}
"""Name -> location."""

VM_SIZES: Mapping[str, VmSize] = {size.name: size for size in _vm_sizes()}
"""Name -> size, for the sizes whose hardware the data contain."""
