"""Regions, availability zones and EC2 instance types of AWS."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from cloudfacts.data import load


@dataclass(frozen=True, kw_only=True)
class Region:
    """A region of the standard partition.

    Attributes:
        name: name, such as `us-east-1`.
        description: the name that the console shows.
        zone_letters: the last letters of its availability zones; empty if the data contain no zones.
    """

    name: str
    description: str
    zone_letters: str = ""

    @property
    def zones(self) -> tuple[str, ...]:
        """The names of the availability zones, such as `us-east-1a`."""
        return tuple(f"{self.name}{letter}" for letter in self.zone_letters)


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """The hardware of an EC2 instance type.

    Attributes:
        name: name, such as `g6e.24xlarge`.
        vcpus: virtual CPUs by default.
        memory_mib: memory in MiB.
        architecture: `x86_64` or `arm64`.
        gpus: GPUs that the operating system sees, whole or partitioned.
        gpu_manufacturer: `NVIDIA` or `AMD`; empty without GPUs.
        gpu_model: model, such as `L40S`; empty without GPUs.
        gpu_memory_mib: memory of one GPU in MiB.
        gpu_share: fraction of a physical GPU that each GPU is; 1.0 for whole GPUs.
        network_cards: number of network cards.
        efa_interfaces: maximum number of EFA interfaces; 0 without EFA.
    """

    name: str
    vcpus: int
    memory_mib: int
    architecture: str
    gpus: int = 0
    gpu_manufacturer: str = ""
    gpu_model: str = ""
    gpu_memory_mib: int = 0
    gpu_share: float = 1.0
    network_cards: int = 1
    efa_interfaces: int = 0

    @property
    def family(self) -> str:
        """The part of the name before the dot."""
        return family(self.name)

    @property
    def bare_metal(self) -> bool:
        """True for a machine without a hypervisor."""
        return ".metal" in self.name


EKS_LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
"""All logs of an EKS control plane: LogType in the service model of EKS."""

READ_PREFIXES = ("Describe", "List", "Get")
"""Prefixes of read-only actions of IAM. Most of them do not support resource-level permissions."""

LUSTRE_PORTS = ((988, 988), (1018, 1023))
"""Ranges of TCP ports of Lustre: FSx for Lustre User Guide, "File system access control with Amazon VPC"."""

UNDESCRIBED_GPU_FAMILIES = frozenset({"g2", "g4ad", "p6e-gb200"})
"""Families with GPUs whose hardware the data do not contain."""


def family(instance_type: str) -> str:
    """Return the family of an instance type: `g5` for `g5.xlarge`."""
    return instance_type.partition(".")[0]


def addon_registry(region: str) -> str:
    """Return the registry of Amazon from which the clusters of a region pull the images of EKS add-ons."""
    account = _ADDON_REGISTRIES["accounts"].get(region, _ADDON_REGISTRIES["default_account"])
    return f"{account}.dkr.ecr.{region}.amazonaws.com"


def zones(region: str) -> tuple[str, ...]:
    """Return the names of a region's availability zones; empty for an unknown region."""
    return REGIONS[region].zones if region in REGIONS else ()


def gpu_families() -> frozenset[str]:
    """Return the families whose instance types have GPUs, including retired families."""
    current_families = {
        instance_type.family for instance_type in INSTANCE_TYPES.values() if instance_type.gpus
    }
    return frozenset(current_families | set(RETIRED_GPU_FAMILIES) | UNDESCRIBED_GPU_FAMILIES)


def _regions() -> dict[str, Region]:
    letters = load("aws_zones")["zones"]
    return {
        name: Region(name=name, description=description, zone_letters=letters.get(name, ""))
        for name, description in load("aws_regions")["regions"].items()
    }


def _instance_types() -> dict[str, InstanceType]:
    table = load("aws_instance_types")
    assert set(table["columns"]) <= {field.name for field in fields(InstanceType)}  # noqa: S101
    return {
        name: InstanceType(name=name, **dict(zip(table["columns"], row, strict=False)))
        for name, row in table["types"].items()
    }


REGIONS: Mapping[str, Region] = _regions()
"""Name -> region, for every region of the standard partition."""

INSTANCE_TYPES: Mapping[str, InstanceType] = _instance_types()
"""Name -> instance type, for the types whose hardware the data contain."""

INSTANCE_TYPE_NAMES: frozenset[str] = frozenset(
    f"{name}.{size}"
    for name, sizes in load("aws_instance_type_names")["families"].items()
    for size in sizes.split()
)
"""The names of all instance types of the EC2 API, including retired types."""

RETIRED_GPU_FAMILIES: Mapping[str, str] = load("aws_retired")["families"]
"""Family -> time of its retirement by AWS, such as `in 2025`."""

_ADDON_REGISTRIES = load("aws_addon_registries")
