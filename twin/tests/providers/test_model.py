"""Records of resource types against the SDKs."""

from collections.abc import Mapping
from typing import Any

import pytest
from cloudtwin.providers import aws, azure
from cloudtwin.providers.model import Cloud
from cloudtwin.providers.schema.model import Field, ResourceSchema
from cloudtwin.providers.schema.store import SchemaStore


@pytest.mark.parametrize("cloud", [aws.CLOUD, azure.CLOUD], ids=lambda cloud: cloud.name)
def test_paths_in_records_and_limits_exist_in_the_sdk(cloud: Cloud) -> None:
    # A misspelled path would be a rule that never refuses.
    store = SchemaStore(cloud.name, cloud.types)
    for token, kind in cloud.types.items():
        schema = store.load(token)
        names = (kind.naming.property,) if kind.naming else ()
        paths = [*kind.immutable, *kind.enums, *kind.unique, *cloud.limits(token), *names]
        for path in [*paths, *(reference.path for reference in kind.references)]:
            assert _exists(schema, path.split(".")), f"{token} has no {path}"
        for name in kind.defaults:
            assert name in schema.outputs, f"{token} has no output {name}"


def _exists(schema: ResourceSchema, path: list[str]) -> bool:
    fields: Mapping[str, Field] = schema.inputs
    shape: Any = None
    for step in path:
        if shape and {"list", "map"} & set(shape):
            shape = next(iter(shape.values()))  # regardless of the key or position
            continue
        fields = schema.objects[shape["object"]] if shape else fields
        if step not in fields:
            return False
        shape = fields[step].shape
    return True
