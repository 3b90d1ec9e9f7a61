"""Walks the configuration's models: the one place that knows how sections nest.

Messages about faults, rules across fields and the pages of options all have to find the model that
stands under a key. A section with several kinds (`cluster`, `storage`) holds a union of models, told
apart by their `kind`; which one is meant, only the data can say.
"""

import types
import typing
from collections.abc import Iterator, Mapping

from pydantic import BaseModel
from pydantic.fields import FieldInfo

KIND = "kind"


def fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    """Give a model's fields in the order they are written, under the names of the stack file."""
    return [(field.alias or name, field) for name, field in model.model_fields.items()]


def field_at(model: type[BaseModel], key: str) -> FieldInfo | None:
    """Give the field under `key`, as the stack file names it; None where there is none."""
    return dict(fields(model)).get(key)


def models_in(annotation: object) -> list[type[BaseModel]]:
    """Give the models that an annotation holds, also inside a tuple, a mapping or a union."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in models_in(part)]


def variants(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """Give the models of a section with several kinds by kind; empty where it has one shape."""
    if field.discriminator is None:
        return {}
    return {_kind_of(model): model for model in models_in(field.annotation)}


def _kind_of(model: type[BaseModel]) -> str:
    return str(model.model_fields[KIND].get_default())


def chosen(field: FieldInfo, data: object) -> type[BaseModel] | None:
    """Give the model that `data` under `field` is meant for; None for plain values.

    A section with several kinds that does not say which is the field's default.
    """
    by_kind = variants(field)
    if by_kind:
        said = data.get(KIND) if isinstance(data, Mapping) else None
        default = type(field.get_default(call_default_factory=True))
        return by_kind.get(said, default) if isinstance(said, str) else default
    return next(iter(models_in(field.annotation)), None)


def is_many(annotation: object) -> str:
    """Say how the elements of an annotation are addressed: `[]`, `.<name>`, or "" for one."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        return "[]"
    if origin is dict:
        return ".<name>"
    if origin in {types.UnionType, typing.Union}:
        return next((many for many in map(is_many, arguments) if many), "")
    return ""


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Give every key that holds a plain value, dotted, in the order of the models."""
    for key, field in fields(model):
        inner = models_in(field.annotation)
        if not inner:
            yield f"{prefix}{key}", field
        for each in inner:
            yield from leaves(each, f"{prefix}{key}{is_many(field.annotation)}.")
