"""The limits in shapes.json equal the limits in the models of Azure's SDK."""

from cloudtwin.providers import azure
from cloudtwin.providers.azure import read_shapes
from cloudtwin.providers.schema.limits import is_current


def test_the_checked_in_limits_equal_the_checked_in_models() -> None:
    limits = read_shapes.read(azure.CLOUD.types)

    assert is_current(read_shapes.PACKAGE, limits), "run `make catalog`"
