"""The twin supports every value in the tables of the configuration: both use cloudfacts."""

import pytest
from cloudtwin.providers.aws.common import zones
from cloudtwin.providers.aws.machines import gpus, instance_type_error
from cloudtwin.providers.azure import aks_pool_rules
from cloudtwin.providers.azure import common as azure

from components.config import catalog


def test_the_twin_supports_every_listed_gpu_type() -> None:
    names = list(catalog.AWS_GPU_TYPES)

    assert [name for name in names if instance_type_error(name)] == []
    assert all(gpus([name]) for name in names)


@pytest.mark.parametrize("region", catalog.AWS_REGIONS)
def test_the_twin_supports_the_zones_of_every_listed_region(region: str) -> None:
    assert zones(region)


def test_the_twin_supports_every_listed_azure_size_and_location() -> None:
    assert all(aks_pool_rules.gpus(size) for size in catalog.AZURE_GPU_SIZES)
    assert set(catalog.AZURE_LOCATIONS) <= set(azure.LOCATIONS)
