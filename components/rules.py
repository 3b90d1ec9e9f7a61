"""Rules across fields, run also where other fields are wrong.

A rule names the keys it looks at and is a function of their values. It is left out where one of
these values is itself at fault, so that every message is about something true.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from components.faults import Fault, fields, model_at


@dataclass(frozen=True)
class Rule:
    """What must hold between several keys.

    Attributes:
        paths: the keys, dotted, below `everstep:`.
        check: their values in the same order -> what is wrong; empty where all is well.
    """

    paths: tuple[str, ...]
    check: Callable[..., list[Fault]]


def broken(
    rules: Sequence[Rule],
    data: Mapping[str, Any],
    model: type[BaseModel],
    already_faulty: Collection[str],
) -> list[Fault]:
    """Give the faults of all rules whose values are each, by themselves, right."""
    faults = []
    for rule in rules:
        if any(_touches(path, faulty) for path in rule.paths for faulty in already_faulty):
            continue
        faults += rule.check(*(value_at(data, model, path) for path in rule.paths))
    return faults


def _touches(path: str, faulty: str) -> bool:
    """Say whether a fault at `faulty` makes the value at `path` unusable."""
    return path == faulty or path.startswith(f"{faulty}.")


def value_at(data: object, model: type[BaseModel], path: str) -> object:
    """Give the value under a dotted path, typed, or the default where the mapping is silent.

    Raises:
        KeyError: the model has no such key, which is a mistake in a rule.
    """
    key, _, rest = path.partition(".")
    field = next((field for name, field in fields(model) if field.alias == key), None)
    if field is None:
        raise KeyError(path)
    inside = data.get(key) if isinstance(data, Mapping) else None
    if rest:
        inner = model_at(model, key)
        if inner is None:
            raise KeyError(path)
        return value_at(inside, inner, rest)
    if not isinstance(data, Mapping) or key not in data:
        return field.get_default(call_default_factory=True)
    return _typed(field, inside)


def _typed(field: FieldInfo, value: object) -> object:
    """Read a value as pydantic would ("3" is 3); a union or a constraint does not matter here."""
    adapter: TypeAdapter[object] = TypeAdapter(
        field.rebuild_annotation(), config=ConfigDict(coerce_numbers_to_str=True)
    )
    try:
        return adapter.validate_python(value)
    except ValidationError:
        return value  # its own fault is on the list already
