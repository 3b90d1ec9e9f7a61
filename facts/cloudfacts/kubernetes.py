"""Kubernetes versions that EKS and AKS offer; `facts/sources.toml` has their sources and dates."""

from collections.abc import Mapping

EKS_VERSIONS = ("1.33", "1.34", "1.35", "1.36", "1.37")
"""Versions of EKS, including versions in extended support, billed extra; the last is the default of EKS."""

AKS_PATCHES: Mapping[str, str] = {
    "1.34": "1.34.8",
    "1.35": "1.35.5",
    "1.36": "1.36.2",
    "1.37": "1.37.0",
}
"""Minor version of AKS -> the patch that AKS installs for it."""

AKS_VERSIONS = tuple(AKS_PATCHES)
AKS_DEFAULT_VERSION = "1.36"
"""The version of an AKS cluster that specifies no version."""

STANDARD_SUPPORT = ("1.35", "1.36", "1.37")
"""Versions in standard support, without an extra charge, on both clouds."""

END_OF_SUPPORT: Mapping[str, str] = {
    "1.32": "ended in March 2026",
    "1.33": "ended in July 2026",
    "1.34": "ends in November 2026 on AKS, on 2026-12-02 on EKS",
}
"""Version -> end of its standard support on both clouds, for versions that are not in STANDARD_SUPPORT."""
