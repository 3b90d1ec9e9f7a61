"""What is wrong with a configuration, said so that its author can put it right.

pydantic's own messages speak of Python types and of its documentation; these name the key as it
stands in the stack file, its value, the rule and the cure, and give all faults at once.
"""

import difflib
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import AfterValidator, BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

NAMESPACE = "everstep"


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
    lowered = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=3, cutoff=0.6)
    if close:
        return "did you mean " + " or ".join(lowered[match] for match in close) + "?"
    return "there are: " + ", ".join(known)


def known_or_nearest(what: str, known: Sequence[str]) -> AfterValidator:
    """Make a field accept only `known` names and offer the nearest ones otherwise."""

    def check(name: str) -> str:
        if name in known:
            return name
        raise PydanticCustomError(
            "unknown_name",
            "is no known {what}; {nearest}",
            {"what": what, "nearest": nearest(name, known)},
        )

    return AfterValidator(check)


def readable(error: ValidationError, model: type[BaseModel]) -> list[Fault]:
    """Turn pydantic's errors about `model` into faults."""
    return [_fault(detail, model) for detail in error.errors(include_url=False)]


def _fault(detail: ErrorDetails, model: type[BaseModel]) -> Fault:
    """Turn one of pydantic's errors into a fault."""
    path = _dotted(detail["loc"])
    value = detail.get("input")
    if detail["type"] == "extra_forbidden":
        return Fault(path, _brief(value), "is no known key", _nearest_key(detail["loc"], model))
    if detail["type"] == "missing":
        return Fault(path, None, "is missing", "add it")
    if detail["type"] in {"model_type", "model_attributes_type", "dict_type"}:
        return Fault(path, value, "must be a mapping of keys to values")
    if detail["type"] == "unknown_name":
        return Fault(path, value, detail["msg"])
    message = detail["msg"][0].lower() + detail["msg"][1:]
    return Fault(path, _brief(value), message.replace("input should", "must"))


def _dotted(location: Sequence[int | str]) -> str:
    """Write pydantic's location as a path: ("a", 0, "b") becomes a[0].b."""
    parts = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return parts.removeprefix(".")


def _brief(value: object) -> object:
    """Keep nested values out of a one-line message."""
    return "..." if isinstance(value, dict | list) else value


def _nearest_key(location: Sequence[int | str], model: type[BaseModel]) -> str:
    """Name the known keys closest to an unknown one, beside which it stands."""
    for part in location[:-1]:
        inner = model_at(model, part) if isinstance(part, str) else model
        model = inner or model
    return nearest(str(location[-1]), [field.alias or name for name, field in fields(model)])


def fields(model: type[BaseModel]) -> list[tuple[str, Any]]:
    """Give a model's fields in the order they are written."""
    return list(model.model_fields.items())


def model_at(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    """Give the model under `key` (its alias), also inside a tuple; None for plain values."""
    for name, field in fields(model):
        if key in {name, field.alias}:
            candidates = (field.annotation, *typing.get_args(field.annotation))
            for candidate in candidates:
                if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                    return candidate
    return None
