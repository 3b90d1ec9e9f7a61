"""Traversal of the configuration models.

Messages about invalid values, rules across fields and the configuration reference find the model of a key here. A
section with several kinds (`cluster`, `storage`) is a union of models with the discriminator
`kind`, so its model depends on the data.
"""

import types
import typing
from collections.abc import Iterator, Mapping
from functools import cache

from pydantic import BaseModel
from pydantic.fields import FieldInfo

KIND = "kind"


def fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """Return a model's fields in order of declaration, under their names in the stack file."""
    return [(field.alias or name, field) for name, field in model.model_fields.items()]


def field_at(model: type[BaseModel], key: str) -> FieldInfo | None:
    """Return the field under `key`, its name in the stack file; None without such a field."""
    return _fields_by_key(model).get(key)


@cache
def _fields_by_key(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    return dict(fields(model))


def models_in(annotation: object) -> list[type[BaseModel]]:
    """Return the models in an annotation, including models inside a tuple, a mapping or a union."""
    return list(_models_in(annotation))


@cache  # the rules look the models of the same few annotations up 1,000 times for one stack
def _models_in(annotation: object) -> tuple[type[BaseModel], ...]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (annotation,)
    return tuple(model for part in typing.get_args(annotation) for model in _models_in(part))


def variants(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """Return the models of a section with several kinds, by kind; empty for other sections."""
    if field.discriminator is None:
        return {}
    return {_kind_of(model): model for model in models_in(field.annotation)}


@cache
def _kind_of(model: type[BaseModel]) -> str:
    return str(model.model_fields[KIND].get_default())


def model_for(field: FieldInfo, data: object) -> type[BaseModel] | None:
    """Return the model for `data` under `field`; None for plain values.

    Without a valid kind, a section with several kinds has the kind of the field's default.
    """
    by_kind = variants(field)
    if by_kind:
        kind = data.get(KIND) if isinstance(data, Mapping) else None
        if isinstance(kind, str) and kind in by_kind:
            return by_kind[kind]
        return type(field.get_default(call_default_factory=True))
    return next(iter(models_in(field.annotation)), None)


def elements_suffix(annotation: object) -> str:
    """Return the path suffix of an annotation's elements: `[]`, `.<name>`, or "" for one value."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        return "[]"
    if origin is dict:
        return ".<name>"
    if origin in {types.UnionType, typing.Union}:
        return next((suffix for suffix in map(elements_suffix, arguments) if suffix), "")
    return ""


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key with a plain value, as a dotted path, in the order of the models."""
    for key, field in fields(model):
        inner = models_in(field.annotation)
        if not inner:
            yield f"{prefix}{key}", field
        for argument in inner:
            yield from leaves(argument, f"{prefix}{key}{elements_suffix(field.annotation)}.")
