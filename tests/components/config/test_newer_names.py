"""Cloud names newer than Everstep's tables are accepted with a warning; misspelled names are refused."""

from typing import Any

import pytest

from components.config import from_mapping, warnings
from components.config.faults import ConfigurationError
from components.cost import estimate
from tests.components.config.bad_stacks import AKS, EKS, with_changes


def in_region(name: str) -> dict[str, Any]:
    return with_changes(EKS, {"cluster.region": name, "cluster.zones": [f"{name}a", f"{name}b"]})


def in_location(name: str) -> dict[str, Any]:
    return with_changes(AKS, {"cluster.location": name})


@pytest.mark.parametrize(
    "stack",
    [
        *map(in_region, ("us-east-3", "mx-central-1", "ap-southeast-7", "eu-west-9")),
        *map(in_location, ("denmarkeast", "finlandcentral", "eastus3", "saudiarabiaeast")),
    ],
    ids=lambda stack: stack["cluster"].get("region") or stack["cluster"]["location"],
)
def test_a_newer_region_or_location_is_accepted_with_a_warning_that_its_prices_are_unknown(
    stack: dict[str, Any],
) -> None:
    config = from_mapping(stack)

    (warning,) = warnings(config)

    assert "its prices are unknown" in warning
    assert "cost.prices" in warning, "the fix"
    assert estimate(config).total(spot=True).unknown, "no price of another region is used"


@pytest.mark.parametrize(
    "stack",
    [
        *map(
            in_region, ("us-esat-1", "su-east-1x", "us-east1", "moon-1", "xx-east-1", "us-east-0")
        ),
        *map(in_location, ("eatus", "westeurop", "easteurope", "swedencentrl", "West Europe")),
        *map(in_location, ("francesouth", "westindia", "moon")),
    ],
    ids=lambda stack: stack["cluster"].get("region") or stack["cluster"]["location"],
)
def test_a_misspelled_or_unavailable_region_or_location_is_refused(stack: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"is not a known (AWS region|Azure location)"):
        from_mapping(stack)


def test_the_zones_of_a_newer_region_have_its_name() -> None:
    stack = with_changes(in_region("us-east-3"), {"cluster.zones": ["us-east-3a", "us-east-1b"]})

    with pytest.raises(ConfigurationError, match="not a zone of us-east-3"):
        from_mapping(stack)


def test_a_newer_instance_family_of_the_system_pool_is_accepted_with_a_warning() -> None:
    config = from_mapping(with_changes(EKS, {"cluster.systemPool.instanceTypes": ["m9i.xlarge"]}))

    (warning,) = warnings(config)

    assert "m9i.xlarge is not in Everstep's table" in warning


@pytest.mark.parametrize(
    "name", ["m6i.xlrage", "mi6.xlarge", "m5.64xlarge", "z9.xlarge", "p9.large"]
)
def test_a_misspelled_or_unsuitable_instance_type_of_the_system_pool_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"instanceTypes\[0\]: {name}\n.* is not a known"):
        from_mapping(with_changes(EKS, {"cluster.systemPool.instanceTypes": [name]}))


def test_zones_of_a_newer_location_are_accepted() -> None:
    from_mapping(with_changes(in_location("denmarkeast"), {"storage.redundancy": "Standard_ZRS"}))


@pytest.mark.parametrize("stack", [EKS, AKS, {}], ids=["eks", "aks", "existing"])
def test_known_regions_and_locations_cause_no_warning(stack: dict[str, Any]) -> None:
    assert warnings(from_mapping(stack)) == []
