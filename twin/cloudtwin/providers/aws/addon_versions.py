"""Versions of EKS add-ons, as DescribeAddonVersions lists them. Pure.

The versions have AWS's form: the builds of an add-on are numbered with gaps, and the default version is not
the most recent one. The list is incomplete. Sources: EKS User Guide, "Amazon EKS add-ons", and published
configurations of clusters with Kubernetes 1.33 to 1.36, read 2026-11; the versions for 1.37 follow their form.
"""

from collections.abc import Mapping

from cloudfacts.kubernetes import EKS_VERSIONS

from cloudtwin.providers.errors import CloudError

NOT_SUPPORTED = "InvalidParameterException"

ALL = "all"
"""Key of the versions for every version of Kubernetes."""

# Add-on -> version of Kubernetes -> versions of the add-on: AWS's default, and the most recent.
AVAILABLE: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "kube-proxy": {
        "1.33": ("v1.33.3-eksbuild.4", "v1.33.10-eksbuild.2"),
        "1.34": ("v1.34.0-eksbuild.4", "v1.34.6-eksbuild.2"),
        "1.35": ("v1.35.0-eksbuild.2", "v1.35.3-eksbuild.13"),
        "1.36": ("v1.36.0-eksbuild.7", "v1.36.0-eksbuild.14"),
        "1.37": ("v1.37.0-eksbuild.3", "v1.37.1-eksbuild.5"),
    },
    "coredns": {
        "1.33": ("v1.12.1-eksbuild.2", "v1.13.2-eksbuild.4"),
        "1.34": ("v1.12.3-eksbuild.1", "v1.13.2-eksbuild.4"),
        "1.35": ("v1.13.2-eksbuild.3", "v1.14.2-eksbuild.4"),
        "1.36": ("v1.14.2-eksbuild.4", "v1.14.3-eksbuild.3"),
        "1.37": ("v1.14.3-eksbuild.3", "v1.14.4-eksbuild.2"),
    },
    "vpc-cni": {ALL: ("v1.22.3-eksbuild.2", "v1.23.1-eksbuild.2")},
    "eks-pod-identity-agent": {ALL: ("v1.3.10-eksbuild.3", "v1.3.11-eksbuild.2")},
    "eks-node-monitoring-agent": {ALL: ("v1.6.1-eksbuild.1", "v1.6.4-eksbuild.2")},
    "aws-fsx-csi-driver": {ALL: ("v1.8.0-eksbuild.2", "v1.9.1-eksbuild.3")},
    "aws-ebs-csi-driver": {ALL: ("v1.57.1-eksbuild.1", "v1.60.0-eksbuild.1")},
    "aws-efs-csi-driver": {ALL: ("v2.3.0-eksbuild.2", "v3.0.1-eksbuild.1")},
    "aws-mountpoint-s3-csi-driver": {ALL: ("v2.4.0-eksbuild.1", "v2.5.0-eksbuild.2")},
    "snapshot-controller": {ALL: ("v8.5.0-eksbuild.3", "v8.5.0-eksbuild.5")},
    "metrics-server": {ALL: ("v0.8.1-eksbuild.2", "v0.8.1-eksbuild.9")},
    "cert-manager": {ALL: ("v1.19.4-eksbuild.1", "v1.20.1-eksbuild.1")},
    "adot": {ALL: ("v0.141.0-eksbuild.1", "v0.146.0-eksbuild.1")},
    "amazon-cloudwatch-observability": {ALL: ("v5.2.1-eksbuild.1", "v5.4.0-eksbuild.1")},
    "aws-network-flow-monitoring-agent": {ALL: ("v1.1.3-eksbuild.1", "v1.1.5-eksbuild.2")},
}


def available_versions(addon: str, kubernetes: str) -> tuple[str, ...]:
    """Return the versions of an add-on for a version of Kubernetes, the default version first."""
    if kubernetes not in EKS_VERSIONS:
        return ()
    versions = AVAILABLE.get(addon, {})
    return versions.get(kubernetes, versions.get(ALL, ()))


def resolve_version(addon: str, kubernetes: str, *, most_recent: bool) -> str:
    """Return the default or most recent version of an add-on.

    Raises:
        CloudError: the add-on, or the version of Kubernetes, does not exist.
    """
    versions = available_versions(addon, kubernetes)
    if not versions:
        reason = "reading EKS Add-On version info"
        raise CloudError(NOT_SUPPORTED, f"{reason} ({addon}, {kubernetes}): empty result")
    return versions[-1 if most_recent else 0]
