"""The service quota of each instance type."""

import pytest
from cloudfacts.quotas import quota


@pytest.mark.parametrize(
    ("instance_type", "spot", "code"),
    [
        ("g5.xlarge", True, "L-3819A6DF"),
        ("g6e.xlarge", False, "L-DB2E81BA"),
        ("gr6.4xlarge", True, "L-3819A6DF"),
        ("m6i.xlarge", False, "L-1216C47A"),
        ("m6i.xlarge", True, "L-34B43A08"),
        ("p4d.24xlarge", True, "L-7212CCBC"),
        ("p5.48xlarge", True, "L-C4BD4855"),
        ("p5.48xlarge", False, "L-417A185B"),
    ],
)
def test_an_instance_type_counts_against_the_quota_of_its_family(
    instance_type: str, spot: bool, code: str
) -> None:
    family_quota = quota(instance_type, spot=spot)

    assert family_quota is not None
    assert family_quota.code == code


@pytest.mark.parametrize("spot", [True, False])
@pytest.mark.parametrize(
    "instance_type",
    [
        "dl1.24xlarge",
        "hpc7g.4xlarge",
        "inf2.xlarge",
        "mac2.metal",
        "trn1.2xlarge",
        "x2idn.16xlarge",
    ],
)
def test_families_with_separate_quotas_have_no_quota_here(instance_type: str, spot: bool) -> None:
    assert quota(instance_type, spot=spot) is None
