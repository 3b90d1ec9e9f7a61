"""Rules across fields, run also where other fields are wrong.

A rule names the keys it looks at and is a function of their values. It is left out where one of
these values is itself at fault, so that every message is about something true.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from components.faults import Fault
from components.schema import chosen, field_at, fields

Flag: TypeAlias = bool
"""The value of a key that is true or false: a rule takes values in the order of its paths."""


@dataclass(frozen=True)
class Rule:
    """What must hold between several keys.

    Attributes:
        paths: the keys, dotted, below `everstep:`.
        check: their values in the same order -> what is wrong; empty where all is well.
        only: section -> kinds for which the rule is one; empty: for all.
    """

    paths: tuple[str, ...]
    check: Callable[..., list[Fault]]
    only: Mapping[str, Collection[str]] = field(default_factory=dict)


def broken(
    rules: Sequence[Rule],
    data: Mapping[str, Any],
    model: type[BaseModel],
    already_faulty: Collection[str],
) -> list[Fault]:
    """Give the faults of all rules whose values are each, by themselves, right."""
    faults = []
    for rule in rules:
        if not _applies(rule, data, model):
            continue
        if any(_touches(path, faulty) for path in rule.paths for faulty in already_faulty):
            continue
        faults += rule.check(*(value_at(data, model, path) for path in rule.paths))
    return faults


def _applies(rule: Rule, data: Mapping[str, Any], model: type[BaseModel]) -> bool:
    """Say whether the stack's sections are of the kinds that a rule is about."""
    kinds = {section: value_at(data, model, f"{section}.kind") for section in rule.only}
    return all(kinds[section] in wanted for section, wanted in rule.only.items())


def _touches(path: str, faulty: str) -> bool:
    """Say whether a fault at `faulty` makes the value at `path` unusable."""
    return _lies_in(path, faulty) or _lies_in(faulty, path)


def _lies_in(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


def value_at(data: object, model: type[BaseModel], path: str) -> object:
    """Give the value under a dotted path, typed, or the default where the mapping is silent.

    None stands for a required key that is missing.

    Raises:
        KeyError: the model has no such key, which is a mistake in a rule.
    """
    key, _, rest = path.partition(".")
    found = field_at(model, key)
    if found is None:
        raise KeyError(path)
    inside = data.get(key) if isinstance(data, Mapping) else None
    if rest:
        inner = chosen(found, inside)
        if inner is None:
            raise KeyError(path)
        return value_at(inside, inner, rest)
    if not isinstance(data, Mapping) or key not in data:
        return None if found.is_required() else found.get_default(call_default_factory=True)
    try:
        return _reader(model, key).validate_python(inside)
    except ValidationError:
        return inside  # its own fault is on the list already


@cache
def _reader(model: type[BaseModel], key: str) -> TypeAdapter[object]:
    """Give what reads a key's value as pydantic would ("3" is 3); made once, which takes a while."""
    annotation = dict(fields(model))[key].rebuild_annotation()
    return TypeAdapter(annotation, config=ConfigDict(coerce_numbers_to_str=True))
