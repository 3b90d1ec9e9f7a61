"""What a provider answers beside the inputs: foreseen at preview, complete after the creation. Pure.

The SDK reads outputs by their own types, and these differ from the inputs': user-assigned identities
go in as a list and come out as a map, and a list where the SDK expects a map ends the program.
"""

from collections.abc import Mapping
from typing import Any

from twin.clouds.wire.model import Fields, Shape, Wire
from twin.pulumi.provider.convert import UNKNOWN, Plain, Unknown

ZEROS: Mapping[str, Plain] = {"string": "", "integer": 0, "number": 0, "boolean": False}


def foresee(wire: Wire, values: Mapping[str, Plain]) -> dict[str, Any]:
    """Return the outputs as far as they can be told before the resource is there.

    What the program says is echoed. What only the service can say is unknown: an output that always
    has a value, and every output that is no input.
    """
    return _foresee(wire, wire.outputs, wire.inputs, values)


def _foresee(
    wire: Wire, fields: Fields, inputs: Fields | None, values: Mapping[str, Plain]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in fields.items():
        if values.get(name) is not None:
            shape = inputs[name].shape if inputs and name in inputs else None
            found[name] = _echo(wire, field.shape, shape, values[name])
        elif field.required or (inputs is not None and name not in inputs):
            found[name] = UNKNOWN
    return found


def _echo(wire: Wire, shape: Shape, given: Shape | None, value: Plain) -> Plain:
    if isinstance(value, Unknown) or isinstance(shape, str):
        return value
    ((kind, inner),) = shape.items()
    given_inner = _inner(given, kind)
    if kind == "object" and isinstance(value, Mapping):
        known = wire.objects[given_inner] if isinstance(given_inner, str) else None
        return _foresee(wire, wire.objects[inner], known, value)
    if kind == "map" and isinstance(value, list):
        return {str(each): UNKNOWN for each in value if not isinstance(each, Unknown)}
    if kind == "map" and isinstance(value, Mapping):
        return {key: _echo(wire, inner, given_inner, item) for key, item in value.items()}
    if kind == "list" and isinstance(value, list):
        return [_echo(wire, inner, given_inner, item) for item in value]
    return value


def _inner(shape: Shape | None, kind: str) -> Any:  # noqa: ANN401  a shape or an object's name
    return shape.get(kind) if isinstance(shape, Mapping) else None


def complete(wire: Wire, values: Mapping[str, Plain]) -> dict[str, Any]:
    """Return the outputs of a resource that is there.

    What always has a value and was given none has its type's empty one, as the official providers
    answer; what the SDK does not know is left out.
    """
    return _complete(wire, wire.outputs, values)


def _complete(wire: Wire, fields: Fields, values: Mapping[str, Plain]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in fields.items():
        if values.get(name) is not None:
            found[name] = _whole(wire, field.shape, values[name])
        elif field.required:
            found[name] = _zero(wire, field.shape)
    return found


def _whole(wire: Wire, shape: Shape, value: Plain) -> Plain:
    if isinstance(shape, str):
        return value
    ((kind, inner),) = shape.items()
    if kind == "object" and isinstance(value, Mapping):
        return _complete(wire, wire.objects[inner], value)
    if kind == "map" and isinstance(value, list):
        return {str(each): _zero(wire, inner) for each in value}
    if kind == "map" and isinstance(value, Mapping):
        return {key: _whole(wire, inner, item) for key, item in value.items() if item is not None}
    if kind == "list" and isinstance(value, list):
        return [_whole(wire, inner, item) for item in value]
    return value


def _zero(wire: Wire, shape: Shape) -> Plain:
    if isinstance(shape, str):
        return ZEROS.get(shape)
    ((kind, inner),) = shape.items()
    if kind == "list":
        return []
    if kind == "enum":
        return ""
    return _complete(wire, wire.objects[inner], {}) if kind == "object" else {}
