"""The oracle for Azure inputs: the argument classes of Pulumi's SDK, and the models of Azure's SDK.

The classes define names, types, required properties and enumerations; the models define limits of numbers, lengths and
patterns. A class and its model have the same name. The twin takes its limits from the same models, by other code.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cloudtwin.providers.azure.read_models import TARGET as MODELS

from tests.components.sdk_schema import arguments_class, classes_at, input_types, type_errors

REQUESTS = {
    "StorageAccount": "StorageAccountCreateParameters",
    "RoleAssignment": "RoleAssignmentCreateParameters",
}


def reasons(token: str, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why Azure refuses inputs."""
    yield from type_errors(token, inputs)
    module = _models().get(token.split(":")[1])
    arguments = arguments_class(token)
    if module and arguments:
        class_name = token.rpartition(":")[2]
        attributes = {
            **module["names"],
            **module["models"].get(REQUESTS.get(class_name, class_name), {}),
        }
        yield from _object_refusals(arguments, inputs, attributes, module["models"])


@cache
def _models() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(MODELS.read_text())
    return content


def _object_refusals(
    arguments: type,
    value: Mapping[str, Any],
    attributes: Mapping[str, Any],
    models: Mapping[str, Any],
) -> Iterator[str]:
    """Yield the violations in an object of a class."""
    limits = {name.replace("_", ""): limit for name, limit in attributes.items()}
    types = input_types(arguments)
    for name, item in value.items():
        yield from (
            f"{name}: {reason}" for reason in _limit_violations(limits.get(name.lower(), {}), item)
        )
        for inner in classes_at(types[name]) if name in types else ():
            attributes = models.get(inner.__name__.removesuffix("Args"), {})
            for nested in _objects(item):
                yield from _object_refusals(inner, nested, attributes, models)


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield an object, or the objects of a list or a map."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping))
    elif isinstance(value, Mapping):
        yield value
        yield from (item for item in value.values() if isinstance(item, Mapping))


def _limit_violations(limits: Mapping[str, Any], value: Any) -> Iterator[str]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not limits.get("minimum", value) <= value <= limits.get("maximum", value):
            yield f"{value} is out of range"
    elif isinstance(value, str):
        if not limits.get("min_length", 0) <= len(value) <= limits.get("max_length", len(value)):
            yield f"{len(value)} characters"
        if "pattern" in limits and not re.fullmatch(limits["pattern"], value):
            yield f"{value!r} does not match {limits['pattern']}"
    elif isinstance(value, list) and len(value) > limits.get("max_items", len(value)):
        yield f"{len(value)} entries"
