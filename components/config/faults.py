"""Faults of a configuration, with messages that its author can act on.

pydantic's own messages refer to Python types and to its documentation. Messages of this module name the key as
written in the stack file, its value, the rule and the fix, and list all faults together.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from components.config.schema import KIND, field_at, fields, models_in, variants
from everstep.catalog.plurals import amount
from everstep.spelling import similar_names

NAMESPACE = "everstep"
_REFUSAL_TYPE = "refused"  # type of the errors that `refusal` returns


def yaml_value(value: object) -> str:
    """Return a value as it is written in a stack file."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {yaml_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(yaml_value(element) or '""' for element in value) + "]"
    return str(value)


@dataclass(frozen=True)
class ConfigFault:
    """One fault of a configuration.

    Attributes:
        path: the key below `everstep:`, dotted, as in the stack file: `job.minReplicas`; `*` for all keys.
        value: the value of the key; None if the key is missing, or if the message does not show the value.
        rule: the violated rule; continues a sentence that starts with the key.
        fix: correction; empty if the rule implies it.
    """

    path: str
    value: Any
    rule: str
    fix: str = ""

    def __str__(self) -> str:
        value = "" if self.value is None else f": {yaml_value(self.value)}"
        fix = f"; {self.fix}" if self.fix else ""
        return f"{NAMESPACE}:{self.path}{value}\n    {self.rule}{fix}"


class ConfigurationError(ValueError):
    """The configuration of a stack is invalid.

    Attributes:
        faults: all faults found.
    """

    def __init__(self, faults: Sequence[ConfigFault]) -> None:
        self.faults = tuple(faults)
        count = "one fault" if len(faults) == 1 else f"{len(faults)} faults"
        lines = [f"The configuration of this stack has {count}:", *map(str, faults)]
        super().__init__("\n  ".join("\n".join(lines).splitlines()))


def nearest_hint(name: str, candidates: Sequence[str]) -> str:
    """Return a hint with the candidates closest to `name`; with all candidates if none is close."""
    if similar := close_names(name, candidates):
        return f"did you mean {' or '.join(similar)}?"
    return "use one of: " + ", ".join(candidates)


def close_names(name: str, candidates: Sequence[str]) -> list[str]:
    """Return up to three candidates similar to `name`, the closest first."""
    return similar_names(name, candidates, min_similarity=0.6)


def refusal(rule: str, fix: str) -> PydanticCustomError:
    """Return the error for a field validator to raise; it is reported like a `ConfigFault`."""
    return PydanticCustomError(_REFUSAL_TYPE, "{rule}; {fix}", {"rule": rule, "fix": fix})


def known_or_nearest(kind: str, candidates: Sequence[str]) -> AfterValidator:
    """Return a validator that accepts only names of `candidates` and suggests the nearest ones."""

    def check(name: str) -> str:
        if name in candidates:
            return name
        raise refusal(f"is not a known {kind}", nearest_hint(name, candidates))

    return AfterValidator(check)


def faults_from(error: ValidationError, model: type[BaseModel]) -> list[ConfigFault]:
    """Convert pydantic's errors about `model` to faults."""
    details = error.errors(include_url=False)
    return [_fault(detail, model) for detail in details if not _is_follow_up(detail, details)]


def _is_follow_up(detail: ErrorDetails, details: Sequence[ErrorDetails]) -> bool:
    """Return True if a list is too short only because its elements are invalid."""
    location = detail["loc"]
    return detail["type"] == "too_short" and any(
        other["loc"][: len(location)] == location for other in details if other is not detail
    )


def _fault(detail: ErrorDetails, model: type[BaseModel]) -> ConfigFault:
    """Convert one of pydantic's errors to a fault."""
    location, model_type = _as_written(detail["loc"], model)
    path, value, context = _dotted(location), detail.get("input"), detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            fix = nearest_hint(str(location[-1]), [key for key, _ in fields(model_type)])
            return ConfigFault(path, _brief(value), "is not a known key", fix)
        case "missing":
            return ConfigFault(path, None, "is missing", "add it")
        case "tuple_type" | "list_type":
            return ConfigFault(path, value, "must be a list", f"write it as [{_brief(value)}]")
        case "model_type" | "model_attributes_type" | "dict_type":
            return ConfigFault(path, value, "must be a mapping of keys to values")
        case "union_tag_invalid":
            section, kind = str(location[-1]), str(context["tag"])
            kinds = list(variants(model_type.model_fields[section]))
            rule = f"is not a known kind of {section}"
            return ConfigFault(f"{path}.{KIND}", kind, rule, nearest_hint(kind, kinds))
        case "too_short":
            minimum = context["min_length"]
            rule = f"has {amount(context['actual_length'], 'value')}; the minimum is {minimum}"
            return ConfigFault(path, _brief(value), rule, f"list {minimum} or more")
        case "too_long":
            maximum = context["max_length"]
            rule = f"has {amount(context['actual_length'], 'value')}; the maximum is {maximum}"
            return ConfigFault(path, _brief(value), rule, f"list {maximum} or fewer")
        case str() if detail["type"] == _REFUSAL_TYPE:
            return ConfigFault(path, value, context["rule"], context["fix"])
    message = detail["msg"][0].lower() + detail["msg"][1:]
    return ConfigFault(path, _brief(value), re.sub("^(input|string) should", "must", message))


def _as_written(
    location: Sequence[int | str], model: type[BaseModel]
) -> tuple[list[int | str], type[BaseModel]]:
    """Return a location as written in the stack file, and the model that declares its last key.

    pydantic's locations also contain the chosen kind of a section, and `[key]` for an invalid
    key of a mapping.
    """
    keys: list[int | str] = []
    holder, by_kind = model, dict[str, type[BaseModel]]()
    for part in location:
        if str(part) in by_kind:
            model = by_kind[str(part)]
        elif part != "[key]":
            keys.append(part)
            holder, value = model, field_at(model, str(part))
            model = model if value is None else next(iter(models_in(value.annotation)), model)
            by_kind = {} if value is None else variants(value)
    return keys, holder


def _dotted(location: Sequence[int | str]) -> str:
    """Return a location as a path: ("a", 0, "b") becomes a[0].b."""
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return parts.removeprefix(".")


def _brief(value: object) -> object:
    """Return a value, or a placeholder if it is nested, to keep a message on one line."""
    return "..." if isinstance(value, dict | list) else value
