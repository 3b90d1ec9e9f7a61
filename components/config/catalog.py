"""Cloud offerings: regions, zones, Kubernetes versions, machine types with GPUs.

A dated table rather than a cloud API call: a configuration is validated without an account, in a pull request from a
fork and in a test. A region, location or CPU instance family newer than the table is accepted with a warning
(`newer_names`), and a CPU size of Azure is accepted without a lookup; any other name that is newer is refused with
the nearest name of the table, and adding it takes one line.

Sources, as of 2026-11-21:
AWS zones and machine types: EC2's DescribeInstanceTypes and DescribeInstanceTypeOfferings as
packaged in moto 5.2.5. Azure sizes and retirements: learn.microsoft.com/azure/virtual-machines/sizes
and its retirement page; locations: `az account list-locations`. Kubernetes: `cloudfacts.kubernetes`.
"""

from cloudfacts import aws, azure
from cloudfacts.kubernetes import END_OF_SUPPORT, STANDARD_SUPPORT
from pydantic import AfterValidator

from components.config.faults import nearest_hint, refusal

DEFAULT_KUBERNETES_VERSION = "1.36"
KUBERNETES_DESCRIPTION = f"Kubernetes, {STANDARD_SUPPORT[0]} to {STANDARD_SUPPORT[-1]}."

CLOUDWATCH_ADDON = "amazon-cloudwatch-observability"
"""The add-on of `cluster.monitoring.containerInsights`."""

EKS_ADDONS = (
    "vpc-cni",
    "coredns",
    "kube-proxy",
    "eks-pod-identity-agent",
    "aws-fsx-csi-driver",
    "eks-node-monitoring-agent",
)
"""The add-ons of each cluster. AWS resolves their versions when the stack is previewed."""

AWS_REGIONS = tuple(name for name, region in aws.REGIONS.items() if region.zones)
"""The regions whose availability zones the table contains."""

AWS_UNSUPPORTED_FAMILIES = frozenset({"g7"})
"""Families whose GPUs the driver of AL2023_x86_64_NVIDIA does not enumerate: workers would wait forever.
Source: node reports of EKS users, 2026-11. Check each release of the image for support."""

AWS_GPU_TYPES = tuple(
    instance_type.name
    for instance_type in aws.INSTANCE_TYPES.values()
    if instance_type.gpu_manufacturer == "NVIDIA"
    and instance_type.architecture == "x86_64"
    and instance_type.gpu_share == 1
    and instance_type.family not in AWS_UNSUPPORTED_FAMILIES
    and not instance_type.bare_metal
)
"""The instance types that workers can use: the AMI is for x86-64 and NVIDIA, the device plugin for
whole GPUs."""

AWS_EFA_TYPES = tuple(name for name in AWS_GPU_TYPES if aws.INSTANCE_TYPES[name].efa_interfaces)
"""The types in AWS_GPU_TYPES that support EFA."""

AWS_UNUSABLE_FAMILIES: dict[str, str] = {
    "p2": "was retired in 2025; use g4dn or g5",
    "p3": "was retired (only p3dn.24xlarge is left); use g5 or g6",
    "g3": "was retired in 2025; use g4dn or g5",
    "g3s": "was retired in 2025; use g4dn.xlarge",
    "g4ad": "has AMD GPUs, but the image is for NVIDIA GPUs; use g4dn",
    "g5g": "has an Arm CPU, but the image is for x86; use g5",
    "g7": "has GPUs that the image AL2023_x86_64_NVIDIA does not enumerate; use g6 or g6e",
    "g6f": "has a fraction of a GPU, which the device plugin does not offer; use g6.xlarge",
    "gr6f": "has a fraction of a GPU, which the device plugin does not offer; use gr6.4xlarge",
}
"""Unusable GPU instance family -> the reason, and an alternative."""

UNCHECKED_LOCATIONS = ("australiacentral", "westindia")
"""Locations that exist, but for which no source confirms that AKS offers GPU machines."""

AZURE_LOCATIONS = tuple(
    location.name
    for location in azure.LOCATIONS.values()
    if not location.restricted and location.name not in UNCHECKED_LOCATIONS
)
"""The locations of the table that a stack can name."""

AZURE_GPU_SIZES = tuple(size.name for size in azure.VM_SIZES.values() if size.gpus)
"""The VM sizes that workers can use."""


def supported_version() -> AfterValidator:
    """Return a validator that accepts only Kubernetes versions in standard support on both clouds."""

    def check(version: str) -> str:
        if version in STANDARD_SUPPORT:
            return version
        end_of_support = END_OF_SUPPORT.get(version)
        rule = (
            f"is no longer supported: it {end_of_support}"
            if end_of_support
            else "is not a supported version"
        )
        raise refusal(rule, nearest_hint(version, STANDARD_SUPPORT))

    return AfterValidator(check)
