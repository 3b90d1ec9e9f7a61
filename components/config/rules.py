"""Rules across fields, checked even if other fields are invalid.

A rule lists its keys and is a function of their values. It is skipped if one of these values is
itself invalid, so that each fault is reported only once.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from components.config.faults import ConfigFault
from components.config.schema import field_at, fields, model_for

Flag: TypeAlias = bool
"""A boolean value, passed by position: a rule gets its values in the order of its paths."""


@dataclass(frozen=True)
class ConfigRule:
    """A rule across several keys.

    Attributes:
        paths: the keys, dotted, below `everstep:`.
        check: function from the values of `paths`, in the same order, to the faults.
        only: section -> kinds to which the rule applies; empty: all kinds.
        unless: a key that disables the rule if it is set; empty: the rule always applies.
    """

    paths: tuple[str, ...]
    check: Callable[..., list[ConfigFault]]
    only: Mapping[str, Collection[str]] = field(default_factory=dict)
    unless: str = ""


def violations(
    rules: Sequence[ConfigRule],
    data: Mapping[str, Any],
    model: type[BaseModel],
    already_faulty: Collection[str],
) -> list[ConfigFault]:
    """Return the faults of all rules whose values are individually valid."""
    faults = []
    for rule in rules:
        if not _applies(rule, data, model):
            continue
        if any(_touches(path, faulty) for path in rule.paths for faulty in already_faulty):
            continue
        faults += rule.check(*(value_at(data, model, path) for path in rule.paths))
    return faults


def _applies(rule: ConfigRule, data: Mapping[str, Any], model: type[BaseModel]) -> bool:
    """Return True if a rule applies: the sections have the kinds in `only`, and the key `unless` is not set."""
    kinds = {section: value_at(data, model, f"{section}.kind") for section in rule.only}
    if not all(kinds[section] in allowed for section, allowed in rule.only.items()):
        return False
    return not (rule.unless and value_at(data, model, rule.unless))


def _touches(path: str, faulty: str) -> bool:
    """Return True if a fault at `faulty` makes the value at `path` unusable."""
    return _lies_in(path, faulty) or _lies_in(faulty, path)


def _lies_in(inner: str, outer: str) -> bool:
    return inner == outer or inner.startswith((f"{outer}.", f"{outer}["))


def value_at(data: object, model: type[BaseModel], path: str) -> object:
    """Return the typed value at a dotted path, or the default if the mapping lacks it.

    The result is None for a missing required key, and the untyped value if it is invalid.

    Raises:
        KeyError: the model has no such key, which is a bug in a rule.
    """
    key, _, remaining = path.partition(".")
    model_field = field_at(model, key)
    if model_field is None:
        raise KeyError(path)
    section = data.get(key) if isinstance(data, Mapping) else None
    if remaining:
        inner = model_for(model_field, section)
        if inner is None:
            raise KeyError(path)
        return value_at(section, inner, remaining)
    if not isinstance(data, Mapping) or key not in data:
        return (
            None
            if model_field.is_required()
            else model_field.get_default(call_default_factory=True)
        )
    try:
        return _reader(model, key).validate_python(section)
    except ValidationError:
        return section  # the caller has already reported the fault


@cache
def _reader(model: type[BaseModel], key: str) -> TypeAdapter[object]:
    """Return the adapter that parses a key's value ("3" is 3); cached because it is slow to build."""
    annotation = dict(fields(model))[key].rebuild_annotation()
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return TypeAdapter(annotation)  # a model has its own configuration
    return TypeAdapter(annotation, config=ConfigDict(coerce_numbers_to_str=True))
