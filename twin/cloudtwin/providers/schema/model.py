"""The schema of one resource type, as Pulumi's protocol transports it.

A shape is written as JSON writes it, so that the cache needs no translation: `"string"`,
`"integer"`, `"number"`, `"boolean"`, `"asset"`, `"any"`, `{"list": shape}`, `{"map": shape}`,
`{"object": name}` or `{"enum": [value, ...]}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Shape: TypeAlias = str | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Field:
    """Shape of one property, and whether it is required."""

    shape: Shape
    required: bool = False


Fields: TypeAlias = Mapping[str, Field]


@dataclass(frozen=True, kw_only=True)
class ResourceSchema:
    """One resource type.

    Attributes:
        token: type token, such as aws:ec2/vpc:Vpc.
        inputs: properties that a program may set.
        outputs: properties that it may read; required outputs are never null.
        objects: nested types, by the name that shapes use.
    """

    token: str
    inputs: Fields
    outputs: Fields
    objects: Mapping[str, Fields]


def to_json(schema: ResourceSchema) -> dict[str, Any]:
    """Return a schema as JSON for the cache."""
    return {
        "token": schema.token,
        "inputs": _write(schema.inputs),
        "outputs": _write(schema.outputs),
        "objects": {name: _write(fields) for name, fields in schema.objects.items()},
    }


def from_json(document: Mapping[str, Any]) -> ResourceSchema:
    """Return the schema that `to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: the JSON has another form.
    """
    return ResourceSchema(
        token=document["token"],
        inputs=_read(document["inputs"]),
        outputs=_read(document["outputs"]),
        objects={name: _read(fields) for name, fields in document["objects"].items()},
    )


def _write(fields: Fields) -> dict[str, list[Any]]:
    return {name: [field.shape, field.required] for name, field in fields.items()}


def _read(document: Mapping[str, Any]) -> Fields:
    return {
        name: Field(shape=shape, required=bool(required))
        for name, (shape, required) in document.items()
    }
