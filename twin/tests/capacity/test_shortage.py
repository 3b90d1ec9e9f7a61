"""The clouds' error messages for machines that they do not start."""

from typing import Any

import pytest
from cloudtwin.capacity import shortage

from twin.tests.capacity.builders import pool

AWS: dict[str, Any] = {"zone": "us-east-1a", "region": "us-east-1"}
AZURE: dict[str, Any] = {
    "cloud": "azure",
    "region": "eastus",
    "instance_types": ("Standard_NC4as_T4_v3",),
}
CASES: list[tuple[dict[str, Any], str]] = [
    (
        AWS | {"capacity": "on-demand"},
        (
            "InsufficientInstanceCapacity - We currently do not have sufficient g5.xlarge capacity in the "
            "Availability Zone you requested (us-east-1a)."
        ),
    ),
    (
        AWS,
        (
            "Could not launch Spot Instances. InsufficientInstanceCapacity - There is no Spot capacity available "
            "that matches your request."
        ),
    ),
    (
        AZURE | {"zone": "eastus-1"},
        (
            "OverconstrainedZonalAllocationRequest: Allocation failed. VM(s) with the following constraints cannot "
            "be allocated"
        ),
    ),
    (
        AZURE | {"capacity": "on-demand"},
        (
            "AllocationFailed: Allocation failed. We do not have sufficient capacity for the requested VM size in "
            "this region."
        ),
    ),
    (
        AZURE,
        "SkuNotAvailable: The requested size for resource 'aks-spot-00000000-vmss' is currently not",
    ),
]


@pytest.mark.parametrize(("fields", "message"), CASES)
def test_each_cloud_and_kind_of_capacity_has_its_own_error(
    fields: dict[str, Any], message: str
) -> None:
    text = shortage.reason(pool(**fields), 2)

    assert message in text
    assert text.endswith("(2 more of spot)")


def test_a_price_above_the_maximum_is_the_reason_even_if_there_is_no_capacity() -> None:
    capped = pool(**AZURE, max_price=0.1)

    assert "max price '0.1 USD' is lower than the current spot price '0.2 USD'" in shortage.reason(
        capped, 1, 0.2
    )
    assert "SkuNotAvailable" in shortage.reason(capped, 1, 0.1)
    assert "SkuNotAvailable" in shortage.reason(capped, 1, None)
