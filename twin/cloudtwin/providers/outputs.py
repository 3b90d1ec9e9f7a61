"""Outputs of a resource: predicted at preview, complete after the creation. Pure.

The SDK reads outputs by their own types, which differ from the inputs': user-assigned identities are a
list in the inputs and a map in the outputs, and a list where the SDK expects a map crashes the program.
"""

from collections.abc import Mapping
from typing import Any

from cloudtwin.providers.protocol.values import UNKNOWN, PropertyValue, Unknown
from cloudtwin.providers.schema.model import Fields, ResourceSchema, Shape

ZEROS: Mapping[str, PropertyValue] = {"string": "", "integer": 0, "number": 0, "boolean": False}


def predict(schema: ResourceSchema, values: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """Return the outputs that are known before the creation.

    Inputs are echoed. Outputs that always have a value, and outputs that are not inputs, are unknown.
    """
    return _predict(schema, schema.outputs, schema.inputs, values)


def _predict(
    schema: ResourceSchema,
    fields: Fields,
    inputs: Fields | None,
    values: Mapping[str, PropertyValue],
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, field in fields.items():
        if values.get(name) is not None:
            shape = inputs[name].shape if inputs and name in inputs else None
            result[name] = _echo(schema, field.shape, shape, values[name])
        elif field.required or (inputs is not None and name not in inputs):
            result[name] = UNKNOWN
    return result


def _echo(
    schema: ResourceSchema, shape: Shape, input_shape: Shape | None, value: PropertyValue
) -> PropertyValue:
    if isinstance(value, Unknown) or isinstance(shape, str):
        return value
    ((kind, inner),) = shape.items()
    inner_input_shape = _inner(input_shape, kind)
    if kind == "object" and isinstance(value, Mapping):
        input_fields = (
            schema.objects[inner_input_shape] if isinstance(inner_input_shape, str) else None
        )
        return _predict(schema, schema.objects[inner], input_fields, value)
    if kind == "map" and isinstance(value, list):
        return {str(name): UNKNOWN for name in value if not isinstance(name, Unknown)}
    if kind == "map" and isinstance(value, Mapping):
        return {key: _echo(schema, inner, inner_input_shape, item) for key, item in value.items()}
    if kind == "list" and isinstance(value, list):
        return [_echo(schema, inner, inner_input_shape, item) for item in value]
    return value


def with_existing(
    old: Mapping[str, PropertyValue],
    inputs: Mapping[str, PropertyValue],
    predicted: Mapping[str, PropertyValue],
) -> dict[str, Any]:
    """Return predicted outputs with the existing outputs that no input sets, including fields of objects.

    Args:
        old: outputs of the existing resource.
        inputs: new inputs.
        predicted: outputs predicted from the new inputs.
    """
    result = dict(predicted)
    for name, value in old.items():
        new_input, prediction = inputs.get(name), predicted.get(name)
        if name not in inputs:
            result[name] = value
        elif (
            isinstance(value, Mapping)
            and isinstance(new_input, Mapping)
            and isinstance(prediction, Mapping)
        ):
            result[name] = with_existing(value, new_input, prediction)
    return result


def _inner(shape: Shape | None, kind: str) -> Any:  # noqa: ANN401  a shape or an object's name
    return shape.get(kind) if isinstance(shape, Mapping) else None


def complete(schema: ResourceSchema, values: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """Return all outputs of a created resource.

    A required output without a value gets the empty value of its type, as in the official providers;
    values that the SDK does not have are omitted.
    """
    return _complete(schema, schema.outputs, values)


def _complete(
    schema: ResourceSchema, fields: Fields, values: Mapping[str, PropertyValue]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, field in fields.items():
        if values.get(name) is not None:
            result[name] = _complete_value(schema, field.shape, values[name])
        elif field.required:
            result[name] = _zero(schema, field.shape)
    return result


def _complete_value(schema: ResourceSchema, shape: Shape, value: PropertyValue) -> PropertyValue:
    if isinstance(shape, str):
        return value
    ((kind, inner),) = shape.items()
    if kind == "object" and isinstance(value, Mapping):
        return _complete(schema, schema.objects[inner], value)
    if kind == "map" and isinstance(value, list):
        return {str(name): _zero(schema, inner) for name in value}
    if kind == "map" and isinstance(value, Mapping):
        return {
            key: _complete_value(schema, inner, item)
            for key, item in value.items()
            if item is not None
        }
    if kind == "list" and isinstance(value, list):
        return [_complete_value(schema, inner, item) for item in value]
    return value


def _zero(schema: ResourceSchema, shape: Shape) -> PropertyValue:
    if isinstance(shape, str):
        return ZEROS.get(shape)
    ((kind, inner),) = shape.items()
    if kind == "list":
        return []
    if kind == "enum":
        return ""
    return _complete(schema, schema.objects[inner], {}) if kind == "object" else {}
