"""The oracle for AWS inputs: botocore's service models, read without any code of the twin.

`ParamValidator` checks types, required members, unknown members and minima. The models define more: maxima,
enumerations and patterns. `violations` checks all of them.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.loaders
import botocore.model
import botocore.validate

NUMBERS = ("integer", "long", "float", "double")
# Classes of Java's regular expressions in Python's syntax, inside a character class.
CLASSES: Mapping[str, str] = {
    r"\p{L}": r"^\W\d_", r"\p{Z}": r"\s", r"\p{N}": r"\d", r"\p{Alnum}": "a-zA-Z0-9",
    r"\p{ASCII}": r"\x00-\x7f", r"\p{Graph}": r"\x21-\x7e", r"\p{Print}": r"\x20-\x7e",
}  # fmt: skip


@cache
def service(name: str) -> Any:
    """Return the model of a service."""
    description = botocore.loaders.Loader().load_service_model(name, "service-2")
    return botocore.model.ServiceModel(description, name)


def input_shape(service_name: str, operation: str) -> Any:
    """Return the shape of an operation's request."""
    return service(service_name).operation_model(operation).input_shape


def violations(request: Mapping[str, Any], shape: Any) -> Iterator[str]:
    """Yield the reasons why a service refuses a request.

    Args:
        request: parameters of the operation.
        shape: shape of its request.
    """
    report = botocore.validate.ParamValidator().validate(request, shape)
    if report.has_errors():
        yield report.generate_report()
    yield from _further_violations(request, shape, "")


def _further_violations(value: Any, shape: Any, path: str) -> Iterator[str]:
    """Yield the violations that ParamValidator does not look for."""
    if isinstance(value, Mapping) and shape.type_name == "structure":
        for name, item in value.items():
            if name in shape.members:
                yield from _further_violations(item, shape.members[name], f"{path}.{name}")
    elif isinstance(value, Mapping) and shape.type_name == "map":
        for key, element in value.items():
            yield from _further_violations(key, shape.key, f"{path}.{key} (key)")
            yield from _further_violations(element, shape.value, f"{path}.{key}")
    elif isinstance(value, list) and shape.type_name == "list":
        for index, element in enumerate(value):
            yield from _further_violations(element, shape.member, f"{path}[{index}]")
    yield from (f"{path}: {reason}" for reason in _limits(value, shape.metadata, shape.type_name))


def _limits(value: Any, limits: Mapping[str, Any], kind: str) -> Iterator[str]:
    maximum = limits.get("max", math.inf)
    if isinstance(value, str | list | Mapping) and len(value) > maximum:
        yield f"{len(value)} entries or characters, at most {maximum}"
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and kind in NUMBERS
    if is_number and not limits.get("min", -math.inf) <= value <= maximum:
        yield f"{value} is out of range"
    if isinstance(value, str) and limits.get("enum") and value not in limits["enum"]:
        yield f"{value!r} is not in the enumeration"
    pattern = limits.get("pattern")
    if isinstance(value, str) and pattern and not limits.get("enum") and not _fits(pattern, value):
        yield f"{value[:80]!r} does not match {pattern}"


def _fits(pattern: str, text: str) -> bool:
    python_pattern = compiled_pattern(pattern)
    return python_pattern is None or python_pattern.fullmatch(text) is not None


@cache
def compiled_pattern(java: str) -> "re.Pattern[str] | None":
    """Return a pattern of a model for Python; None if Python cannot express it."""
    text = java.replace("(?i)", "").replace(r"\p{IsAlphabetic}", r"\w")
    letters = r"\w" if r"\p{L}" in text else ""
    text = text.replace(r"\p{L}", letters).replace(r"\p{M}", "")
    for name, members in CLASSES.items():
        text = text.replace(name, members)
    if r"\p{" in text or r"\P{" in text:
        return None
    return re.compile(text, re.IGNORECASE if "(?i)" in java else 0)
