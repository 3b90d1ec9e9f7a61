"""Detection of booleans where a number is expected: YAML 1.1 reads `yes` as true, and pydantic accepts true as 1."""

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from components.config.faults import ConfigFault
from components.config.schema import field_at, model_for


def boolean_faults(
    data: Mapping[str, Any], model: type[BaseModel], path: str = ""
) -> Iterator[ConfigFault]:
    """Yield a fault for each boolean under a key that requires a number.

    Args:
        data: mapping of a stack file, or of one of its sections.
        model: model of `data`.
        path: key of the section with a trailing dot; empty for the whole file.
    """
    for key, value in data.items():
        model_field = field_at(model, str(key))
        if model_field is None:
            continue
        if isinstance(value, bool) and _is_number(model_field.annotation):
            rule = f"is {str(value).lower()}, but a number is required"
            yield ConfigFault(f"{path}{key}", None, rule, "write a number")
        inner = model_for(model_field, value)
        if inner is None:
            continue
        for suffix, section in _sections(value, model_field):
            yield from boolean_faults(section, inner, f"{path}{key}{suffix}.")


def _is_number(annotation: object) -> bool:
    """Return True for the type of a number, and of a number that may be absent."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _is_number(arguments[0])
    if origin in {types.UnionType, typing.Union}:
        return any(map(_is_number, arguments))
    return annotation in (int, float)


def _sections(value: object, field: FieldInfo) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each mapping under a key with the end of its path: the section, or the entries of a list or a mapping."""
    if isinstance(value, list):
        elements = {f"[{index}]": element for index, element in enumerate(value)}
    elif isinstance(value, Mapping) and typing.get_origin(field.annotation) is dict:
        elements = {f".{name}": element for name, element in value.items()}
    else:
        elements = {"": value}
    yield from (
        (suffix, element) for suffix, element in elements.items() if isinstance(element, Mapping)
    )
