"""What the clouds have: regions, zones, Kubernetes versions, machine types with GPUs.

A plain table with its date rather than a question to the cloud: a configuration is checked without
an account, in a pull request from a fork and in a test. What is newer than the table is refused with
the nearest name, and is one line to add.

Sources, as of 2026-11-21:
AWS zones and machine types: EC2's DescribeInstanceTypes and DescribeInstanceTypeOfferings as
packaged in moto 5.2.5. Azure sizes and retirements: learn.microsoft.com/azure/virtual-machines/sizes
and its retirement page; locations: `az account list-locations`. Kubernetes: the release calendars of
AKS (2026-08-05) and EKS (2026-02).
"""

from dataclasses import dataclass

from pydantic import AfterValidator

from components.faults import nearest, refused

AWS_ZONES: dict[str, str] = {
    "af-south-1": "abc",
    "ap-east-1": "abc",
    "ap-northeast-1": "acd",
    "ap-northeast-2": "abcd",
    "ap-northeast-3": "abc",
    "ap-south-1": "abc",
    "ap-south-2": "abc",
    "ap-southeast-1": "abc",
    "ap-southeast-2": "abc",
    "ap-southeast-3": "abc",
    "ap-southeast-4": "abc",
    "ap-southeast-5": "abc",
    "ca-central-1": "abd",
    "ca-west-1": "abc",
    "eu-central-1": "abc",
    "eu-central-2": "abc",
    "eu-north-1": "abc",
    "eu-south-1": "abc",
    "eu-south-2": "abc",
    "eu-west-1": "abc",
    "eu-west-2": "abc",
    "eu-west-3": "abc",
    "il-central-1": "abc",
    "me-central-1": "abc",
    "me-south-1": "abc",
    "sa-east-1": "abc",
    "us-east-1": "abcdef",
    "us-east-2": "abc",
    "us-west-1": "abc",  # each account sees two of the three
    "us-west-2": "abcd",
}
"""Region -> the letters of its availability zones."""

AZURE_LOCATIONS: dict[str, bool] = {
    "australiaeast": True,
    "australiasoutheast": False,
    "austriaeast": True,
    "belgiumcentral": True,
    "brazilsouth": True,
    "canadacentral": True,
    "canadaeast": False,
    "centralindia": True,
    "centralus": True,
    "chilecentral": True,
    "eastasia": True,
    "eastus": True,
    "eastus2": True,
    "francecentral": True,
    "germanywestcentral": True,
    "indonesiacentral": True,
    "israelcentral": True,
    "italynorth": True,
    "japaneast": True,
    "japanwest": True,
    "koreacentral": True,
    "koreasouth": False,
    "malaysiawest": True,
    "mexicocentral": True,
    "newzealandnorth": True,
    "northcentralus": False,
    "northeurope": True,
    "norwayeast": True,
    "polandcentral": True,
    "qatarcentral": True,
    "southafricanorth": True,
    "southcentralus": True,
    "southeastasia": True,
    "southindia": False,
    "spaincentral": True,
    "swedencentral": True,
    "switzerlandnorth": True,
    "uaenorth": True,
    "uksouth": True,
    "ukwest": False,
    "westcentralus": False,
    "westeurope": True,
    "westus": False,
    "westus2": True,
    "westus3": True,
}
"""Location -> whether it has availability zones."""

KUBERNETES_VERSIONS = ("1.35", "1.36", "1.37")
KUBERNETES_ENDED = {
    "1.32": "ended in March 2026",
    "1.33": "ended in July 2026",
    "1.34": "ends in November 2026 on AKS, on 2026-12-02 on EKS",
}
"""Versions -> since when no cloud supports them without an extra charge."""

EKS_ADDONS: dict[str, str] = {
    "vpc-cni": "v1.21.1-eksbuild.1",
    "coredns": "v1.13.1-eksbuild.1",
    "kube-proxy": "v{kubernetes}.0-eksbuild.1",
    "eks-pod-identity-agent": "v1.3.10-eksbuild.1",
    "aws-fsx-csi-driver": "v1.9.0-eksbuild.1",
    "eks-node-monitoring-agent": "v1.5.0-eksbuild.1",
}
"""Add-on -> version; not checked against an account, where
`aws eks describe-addon-versions --kubernetes-version 1.36` lists what there is."""


@dataclass(frozen=True)
class Gpus:
    """What a machine type has.

    Attributes:
        count: GPUs that Kubernetes can hand out; a share of one counts as one.
        model: the GPU's name.
        efa: most EFA interfaces; 0 where it has none, and on Azure.
    """

    count: int
    model: str
    efa: int = 0


def _sizes(
    family: str, model: str, sizes: dict[str, tuple[int, int] | tuple[int]]
) -> dict[str, Gpus]:
    """Write one family of AWS: size -> (GPUs, EFA interfaces)."""
    return {f"{family}.{size}": Gpus(has[0], model, *has[1:]) for size, has in sizes.items()}


_SMALL: dict[str, tuple[int]] = {"xlarge": (1,), "2xlarge": (1,), "4xlarge": (1,)}
_LARGE = {"8xlarge": (1, 1), "12xlarge": (4, 1), "16xlarge": (1, 1)}
_WHOLE = {"24xlarge": (4, 1), "48xlarge": (8, 1)}
_WHOLE_WIDE = {"24xlarge": (4, 2), "48xlarge": (8, 4)}
_G7 = {"2xlarge": (1, 0), "4xlarge": (1, 0), "8xlarge": (1, 1), "12xlarge": (2, 1)}

AWS_GPUS: dict[str, Gpus] = {
    **_sizes("g4dn", "T4", {**_SMALL, **_LARGE}),
    **_sizes("g5", "A10G", {**_SMALL, **_LARGE, **_WHOLE}),
    **_sizes("g6", "L4", {**_SMALL, **_LARGE, **_WHOLE}),
    **_sizes("gr6", "L4", {"4xlarge": (1,), "8xlarge": (1, 1)}),
    **_sizes("g6e", "L40S", {**_SMALL, **_LARGE, **_WHOLE_WIDE}),
    **_sizes("g7", "RTX PRO 4500", {**_G7, "24xlarge": (4, 1), "48xlarge": (8, 2)}),
    **_sizes("g7e", "RTX PRO 6000", {**_G7, **_WHOLE_WIDE}),
    "p3dn.24xlarge": Gpus(8, "V100", 1),
    "p4d.24xlarge": Gpus(8, "A100", 4),
    "p4de.24xlarge": Gpus(8, "A100", 4),
    "p5.4xlarge": Gpus(1, "H100", 1),
    "p5.48xlarge": Gpus(8, "H100", 32),
    "p5e.48xlarge": Gpus(8, "H200", 32),
    "p5en.48xlarge": Gpus(8, "H200", 16),
    "p6-b200.48xlarge": Gpus(8, "B200", 8),
    "p6-b300.48xlarge": Gpus(8, "B300", 16),
}
"""Instance type -> its NVIDIA GPUs; x86 with whole GPUs, for that is what the AMI is for."""

AWS_UNFIT: dict[str, str] = {
    "p2": "was retired in 2025; use g4dn or g5",
    "p3": "was retired (only p3dn.24xlarge is left); use g5 or g6",
    "g3": "was retired in 2025; use g4dn or g5",
    "g3s": "was retired in 2025; use g4dn.xlarge",
    "g4ad": "has AMD GPUs, and the image is for NVIDIA's; use g4dn",
    "g5g": "has ARM processors, and the image is for x86; use g5",
    "g6f": "has a part of a GPU that the device plugin does not offer; use g6.xlarge",
    "gr6f": "has a part of a GPU that the device plugin does not offer; use gr6.4xlarge",
}
"""Instance family with GPUs -> why it cannot be had or used, and what can."""

AZURE_GPUS: dict[str, Gpus] = {
    "Standard_NC4as_T4_v3": Gpus(1, "T4"),
    "Standard_NC8as_T4_v3": Gpus(1, "T4"),
    "Standard_NC16as_T4_v3": Gpus(1, "T4"),
    "Standard_NC64as_T4_v3": Gpus(4, "T4"),
    "Standard_NV6ads_A10_v5": Gpus(1, "A10 (a sixth)"),
    "Standard_NV12ads_A10_v5": Gpus(1, "A10 (a third)"),
    "Standard_NV18ads_A10_v5": Gpus(1, "A10 (a half)"),
    "Standard_NV36ads_A10_v5": Gpus(1, "A10"),
    "Standard_NV36adms_A10_v5": Gpus(1, "A10"),
    "Standard_NV72ads_A10_v5": Gpus(2, "A10"),
    "Standard_NC24ads_A100_v4": Gpus(1, "A100"),
    "Standard_NC48ads_A100_v4": Gpus(2, "A100"),
    "Standard_NC96ads_A100_v4": Gpus(4, "A100"),
    "Standard_NC40ads_H100_v5": Gpus(1, "H100"),
    "Standard_NC80adis_H100_v5": Gpus(2, "H100"),
    "Standard_ND96asr_v4": Gpus(8, "A100"),
    "Standard_ND96amsr_A100_v4": Gpus(8, "A100"),
    "Standard_ND96isr_H100_v5": Gpus(8, "H100"),
    "Standard_ND96isr_H200_v5": Gpus(8, "H200"),
}
"""VM size -> its NVIDIA GPUs."""

AZURE_RETIRED: dict[str, str] = {
    r"Standard_NC(6|12|24r?)$": "was retired in 2023",
    r"Standard_N[CD]\d+r?s(_v2)?$": "was retired in 2023",
    r"Standard_NC\d+r?s_v3$": "was retired in September 2025",
    r"Standard_ND40rs_v2$": "was retired in September 2025",
    r"Standard_NV(6|12|24)$": "was retired in 2023",
    r"Standard_NV\d+s_v3$": "was retired in September 2026",
    r"Standard_NV\d+as_v4$": "was retired in September 2026, and had AMD GPUs",
}
"""Pattern of VM sizes -> what became of them; all are succeeded by those with a T4."""


def zones_of(region: str) -> list[str]:
    """Give the names of a region's availability zones."""
    return [f"{region}{letter}" for letter in AWS_ZONES.get(region, "")]


def addon_versions(kubernetes: str) -> dict[str, str]:
    """Give the versions of the add-ons that go with a version of Kubernetes."""
    return {name: version.format(kubernetes=kubernetes) for name, version in EKS_ADDONS.items()}


def supported_version() -> AfterValidator:
    """Make a field accept only versions of Kubernetes that both clouds support."""

    def check(version: str) -> str:
        if version in KUBERNETES_VERSIONS:
            return version
        ended = KUBERNETES_ENDED.get(version)
        rule = f"is no longer supported: it {ended}" if ended else "is no version that is supported"
        raise refused(rule, nearest(version, KUBERNETES_VERSIONS))

    return AfterValidator(check)
