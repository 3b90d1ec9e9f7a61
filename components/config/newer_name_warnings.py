"""Warnings about regions, locations and instance types that `newer_names` accepts and Everstep's table lacks."""

from cloudfacts import aws

from components.config import catalog
from components.config.aks import AksConfig
from components.config.eks import EksConfig
from components.config.faults import nearest_hint


def eks_warnings(cluster: EksConfig) -> list[str]:
    """Return the warnings about a region and instance types of the system pool that are newer than the table."""
    types = [
        f"everstep:cluster.systemPool.instanceTypes[{index}]: {name} is not in Everstep's table, so it is "
        "not checked and its price is unknown; set it in cost.prices."
        for index, name in enumerate(cluster.system_pool.instance_types)
        if name not in aws.INSTANCE_TYPE_NAMES
    ]
    if cluster.region in catalog.AWS_REGIONS:
        return types
    hint = nearest_hint(cluster.region, catalog.AWS_REGIONS)
    return [_warning("cluster.region", cluster.region, hint), *types]


def aks_warnings(cluster: AksConfig) -> list[str]:
    """Return the warning about a location that is newer than the table."""
    if cluster.location in catalog.AZURE_LOCATIONS:
        return []
    hint = nearest_hint(cluster.location, catalog.AZURE_LOCATIONS)
    return [_warning("cluster.location", cluster.location, hint)]


def _warning(path: str, name: str, hint: str) -> str:
    similar = f" {hint[0].upper()}{hint[1:]}" if hint.startswith("did you mean") else ""
    return (
        f"everstep:{path}: Everstep's table has no zones for {name}, so whether they exist is not checked, and "
        f"its prices are unknown; set them in cost.prices.{similar}"
    )
