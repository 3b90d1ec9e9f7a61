"""Limits that the services' own models put on the inputs of each type, in a cloud's `shapes.json`.

`make catalog` writes the file with the cloud's `read_shapes`; the provider only reads it.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE_NAME = "shapes.json"
Limits = Mapping[str, Mapping[str, Any]]
"""Input path -> its limits; `evaluation` describes them."""


def limits_of(package: Path, token: str) -> Limits:
    """Return the limits of a type; empty if its service states none.

    Args:
        package: folder of the cloud's package.
        token: type token.
    """
    return _load(package / FILE_NAME).get(token, {})


@cache
def _load(path: Path) -> Mapping[str, Limits]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def write_limits(package: Path, limits: Mapping[str, Limits]) -> None:
    """Write the limits of a cloud's types."""
    (package / FILE_NAME).write_text(to_text(limits))


def is_current(package: Path, limits: Mapping[str, Limits]) -> bool:
    """Return True if the file has exactly these limits."""
    return (package / FILE_NAME).read_text() == to_text(limits)


def to_text(limits: Mapping[str, Limits]) -> str:
    """Return the content of the file: one input per line, without types that have no limits."""
    types = (_type_text(token, limits[token]) for token in sorted(limits) if limits[token])
    return "{\n" + ",\n".join(types) + "\n}\n"


def _type_text(token: str, limits: Limits) -> str:
    inputs = (f"  {json.dumps(path)}: {json.dumps(limit)}" for path, limit in limits.items())
    return f' "{token}": {{\n' + ",\n".join(inputs) + "\n }"
