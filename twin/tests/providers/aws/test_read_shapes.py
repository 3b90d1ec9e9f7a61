"""The limits in shapes.json equal the limits in AWS's service models."""

from cloudtwin.providers import aws
from cloudtwin.providers.aws import read_shapes
from cloudtwin.providers.aws.common import limits
from cloudtwin.providers.schema.limits import is_current


def test_the_checked_in_limits_equal_the_installed_service_models() -> None:
    assert is_current(read_shapes.PACKAGE, read_shapes.read()), "run `make catalog`"


def test_every_type_with_limits_exists_in_the_twin() -> None:
    assert set(read_shapes.CALLS) <= set(aws.CLOUD.types)
    assert all(limits(token) for token in read_shapes.CALLS), "a call without limits is unused"
