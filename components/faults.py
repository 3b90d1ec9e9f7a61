"""What is wrong with a configuration, said so that its author can put it right.

pydantic's own messages speak of Python types and of its documentation; these name the key as it
stands in the stack file, its value, the rule and the cure, and give all faults at once.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from components.schema import KIND, field_at, fields, models_in, variants

NAMESPACE = "everstep"
_OURS = "refused"  # the type of an error whose words are our own


@dataclass(frozen=True)
class Fault:
    """One thing to put right.

    Attributes:
        path: the key below `everstep:`, dotted, as in the stack file: `job.minReplicas`.
        value: what stands there; None where nothing does.
        rule: what is wrong with it; follows the key in a sentence.
        cure: what to do; empty where the rule says it.
    """

    path: str
    value: Any
    rule: str
    cure: str = ""

    def __str__(self) -> str:
        value = "" if self.value is None else f": {self.value}"
        cure = f"; {self.cure}" if self.cure else ""
        return f"{NAMESPACE}:{self.path}{value}\n    {self.rule}{cure}"


class ConfigurationError(ValueError):
    """The configuration of a stack cannot be used; `faults` says all that is wrong with it."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        count = "one fault" if len(faults) == 1 else f"{len(faults)} faults"
        lines = [f"The configuration of this stack has {count}:", *map(str, faults)]
        super().__init__("\n  ".join("\n".join(lines).splitlines()))


def nearest(name: str, known: Sequence[str]) -> str:
    """Say which known names `name` was probably meant to be, else which there are."""
    close = close_to(name, known)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "there are: " + ", ".join(known)


def close_to(name: str, known: Sequence[str]) -> list[str]:
    """Give up to three known names that `name` may be a misspelling of, the closest first."""
    lowered = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=3, cutoff=0.6)
    return [lowered[match] for match in close]


def refused(rule: str, cure: str) -> PydanticCustomError:
    """Give the error that a field's own check raises; it reads as a `Fault` does."""
    return PydanticCustomError(_OURS, "{rule}; {cure}", {"rule": rule, "cure": cure})


def known_or_nearest(what: str, known: Sequence[str]) -> AfterValidator:
    """Make a field accept only `known` names and offer the nearest ones otherwise."""

    def check(name: str) -> str:
        if name in known:
            return name
        raise refused(f"is no known {what}", nearest(name, known))

    return AfterValidator(check)


def readable(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """Turn pydantic's errors about `model` into faults."""
    details = error.errors(include_url=False)
    return [_fault(detail, model) for detail in details if not _echoes(detail, details)]


def _echoes(detail: ErrorDetails, details: Sequence[ErrorDetails]) -> bool:
    """Say whether a list is called too short only because what stands in it is at fault."""
    place = detail["loc"]
    return detail["type"] == "too_short" and any(
        other["loc"][: len(place)] == place for other in details if other is not detail
    )


def _fault(detail: ErrorDetails, model: type[BaseModel]) -> Fault:
    """Turn one of pydantic's errors into a fault."""
    location, inside = _as_written(detail["loc"], model)
    path, value, context = _dotted(location), detail.get("input"), detail.get("ctx", {})
    match detail["type"]:
        case "extra_forbidden":
            cure = nearest(str(location[-1]), [key for key, _ in fields(inside)])
            return Fault(path, _brief(value), "is no known key", cure)
        case "missing":
            return Fault(path, None, "is missing", "add it")
        case "model_type" | "model_attributes_type" | "dict_type":
            return Fault(path, value, "must be a mapping of keys to values")
        case "union_tag_invalid":
            section, kind = str(location[-1]), str(context["tag"])
            kinds = list(variants(inside.model_fields[section]))
            rule = f"is no known kind of {section}"
            return Fault(f"{path}.{KIND}", kind, rule, nearest(kind, kinds))
        case str() if detail["type"] == _OURS:
            return Fault(path, value, context["rule"], context["cure"])
    message = detail["msg"][0].lower() + detail["msg"][1:]
    return Fault(path, _brief(value), message.replace("input should", "must"))


def _as_written(
    location: Sequence[int | str], model: type[BaseModel]
) -> tuple[list[int | str], type[BaseModel]]:
    """Give a location as the stack file has it, and the model that holds its last key.

    pydantic also names the chosen kind of a section, and `[key]` where a mapping's key is wrong.
    """
    written: list[int | str] = []
    holder, by_kind = model, dict[str, type[BaseModel]]()
    for part in location:
        if str(part) in by_kind:
            model = by_kind[str(part)]
        elif part != "[key]":
            written.append(part)
            holder, found = model, field_at(model, str(part))
            model = model if found is None else next(iter(models_in(found.annotation)), model)
            by_kind = {} if found is None else variants(found)
    return written, holder


def _dotted(location: Sequence[int | str]) -> str:
    """Write a location as a path: ("a", 0, "b") becomes a[0].b."""
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return parts.removeprefix(".")


def _brief(value: object) -> object:
    """Keep nested values out of a one-line message."""
    return "..." if isinstance(value, dict | list) else value
