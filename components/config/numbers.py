"""Detection of booleans where a number is expected: YAML reads `yes` as true, and pydantic accepts true as 1."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from components.config.faults import ConfigFault
from components.config.schema import field_at, model_for


def boolean_faults(
    data: Mapping[str, Any], model: type[BaseModel], path: str = ""
) -> Iterator[ConfigFault]:
    """Yield a fault for each boolean under a key whose value is a number.

    Args:
        data: mapping of a stack file, or of one of its sections.
        model: model of `data`.
        path: key of the section with a dot at its end; empty for the whole file.
    """
    for key, value in data.items():
        model_field = field_at(model, str(key))
        if model_field is None:
            continue
        if isinstance(value, bool) and model_field.annotation in (int, float):
            rule = f"is {str(value).lower()}, and a number is required"
            yield ConfigFault(f"{path}{key}", None, rule, "write a number")
        inner = model_for(model_field, value)
        if inner is None:
            continue
        for suffix, section in _sections(value):
            yield from boolean_faults(section, inner, f"{path}{key}{suffix}.")


def _sections(value: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the mapping under a key, or the mappings in its list, each with the end of its path."""
    if isinstance(value, Mapping):
        yield "", value
    elif isinstance(value, list):
        yield from (
            (f"[{index}]", element)
            for index, element in enumerate(value)
            if isinstance(element, Mapping)
        )
