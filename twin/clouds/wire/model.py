"""A resource type as it is on the wire.

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
    """One property: its shape, and whether it must be there."""

    shape: Shape
    required: bool = False


Fields: TypeAlias = Mapping[str, Field]


@dataclass(frozen=True, kw_only=True)
class Wire:
    """One resource type.

    Attributes:
        token: as the engine names it, such as aws:ec2/vpc:Vpc.
        inputs: what a program may say.
        outputs: what it may read; the required ones are never null.
        objects: the nested types, by the name that shapes use.
    """

    token: str
    inputs: Fields
    outputs: Fields
    objects: Mapping[str, Fields]


def to_json(wire: Wire) -> dict[str, Any]:
    """Write a type for the cache."""
    return {
        "token": wire.token,
        "inputs": _write(wire.inputs),
        "outputs": _write(wire.outputs),
        "objects": {name: _write(fields) for name, fields in wire.objects.items()},
    }


def from_json(stored: Mapping[str, Any]) -> Wire:
    """Read what `to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError: it is something else.
    """
    return Wire(
        token=stored["token"],
        inputs=_read(stored["inputs"]),
        outputs=_read(stored["outputs"]),
        objects={name: _read(fields) for name, fields in stored["objects"].items()},
    )


def _write(fields: Fields) -> dict[str, list[Any]]:
    return {name: [field.shape, field.required] for name, field in fields.items()}


def _read(stored: Mapping[str, Any]) -> Fields:
    return {
        name: Field(shape=shape, required=bool(required))
        for name, (shape, required) in stored.items()
    }
