"""Lookups in an account, and paths in inputs."""

import pytest
from cloudtwin.providers.inventory import Inventory, Resource, values_at
from cloudtwin.providers.protocol.values import PropertyValue


@pytest.mark.parametrize(
    ("path", "values"),
    [("a.*.b", [1, 2]), ("a.*", [{"b": 1}, {"b": 2}]), ("c.*", ["x"]), ("d.e", []), ("n", [])],
)
def test_a_path_matches_all_values(path: str, values: list[PropertyValue]) -> None:
    inputs = {"a": [{"b": 1}, {"b": 2}], "c": {"k": "x"}, "n": None}
    assert values_at(path, inputs) == values


def test_ids_of_clouds_other_than_aws_are_case_insensitive() -> None:
    group = Resource(token="t", id="/a/B", urn="", inputs={}, outputs={})
    assert Inventory((group,)).find(("t",), "/A/b") == group
