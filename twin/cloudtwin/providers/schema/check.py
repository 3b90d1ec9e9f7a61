"""Check of a program's inputs against a schema: names, types, required fields, enumerations. Pure."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cloudtwin.providers.protocol.values import Path, PropertyValue, Secret, Unknown
from cloudtwin.providers.schema.model import Fields, ResourceSchema, Shape

MAX_CHOICES = 12
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True)
class CheckFailure:
    """One invalid input.

    Attributes:
        path: path of the input.
        reason: description of the failure and, where known, its fix.
    """

    path: Path
    reason: str


def check(schema: ResourceSchema, inputs: Mapping[str, PropertyValue]) -> list[CheckFailure]:
    """Return all failures in a resource's inputs; unknown values are accepted."""
    return list(_Checker(schema.objects).fields(schema.inputs, inputs, ()))


class _Checker:
    def __init__(self, objects: Mapping[str, Fields]) -> None:
        self._objects = objects

    def fields(
        self, schema_fields: Fields, values: Mapping[str, PropertyValue], path: Path
    ) -> Iterator[CheckFailure]:
        for name, value in values.items():
            if name not in schema_fields:
                yield CheckFailure(
                    (*path, name), f"there is no such property{nearest(name, schema_fields)}"
                )
            elif value is not None:
                yield from self.value(schema_fields[name].shape, value, (*path, name))
        for name, field in schema_fields.items():
            if field.required and values.get(name) is None:
                yield CheckFailure((*path, name), "it is required and missing")

    def value(self, shape: Shape, value: PropertyValue, path: Path) -> Iterator[CheckFailure]:
        if isinstance(value, Secret):
            yield from self.value(shape, value.value, path)
        elif isinstance(value, Unknown) or shape in ("any", "asset"):
            return
        elif isinstance(shape, str):
            yield from _primitive(shape, value, path)
        else:
            yield from self._composite(shape, value, path)

    def _composite(
        self, shape: Mapping[str, PropertyValue], value: PropertyValue, path: Path
    ) -> Iterator[CheckFailure]:
        ((kind, inner),) = shape.items()
        if kind == "enum":
            yield from one_of(inner, value, path)
        elif kind == "list":
            if not isinstance(value, list):
                yield CheckFailure(path, f"a list is expected, not {_kind(value)}")
                return
            for index, item in enumerate(value):
                yield from self.value(inner, item, (*path, index))
        elif not isinstance(value, Mapping):
            yield CheckFailure(path, f"an object is expected, not {_kind(value)}")
        elif kind == "map":
            for key, item in value.items():
                if item is not None:
                    yield from self.value(inner, item, (*path, key))
        else:
            yield from self.fields(self._objects[inner], value, path)


def _primitive(shape: str, value: PropertyValue, path: Path) -> Iterator[CheckFailure]:
    fits = isinstance(value, TYPES[shape]) and (
        shape == "boolean" or not isinstance(value, bool)  # to Python a bool is an int
    )
    if not fits:
        article = "an" if shape == "integer" else "a"
        yield CheckFailure(path, f"{article} {shape} is expected, not {_kind(value)}")


def one_of(
    choices: list[PropertyValue], value: PropertyValue, path: Path
) -> Iterator[CheckFailure]:
    """Yield a failure for a value that is not one of the choices, with the nearest choice."""
    if value not in choices:
        choice_list = ", ".join(map(str, choices[:MAX_CHOICES]))
        ellipsis = ", ..." if len(choices) > MAX_CHOICES else ""
        closest = nearest(str(value), [str(choice) for choice in choices])
        yield CheckFailure(path, f"{value!r} is not one of {choice_list}{ellipsis}{closest}")


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return `; did you mean ...?`, or an empty string if no name is similar."""
    lower = {candidate.lower(): candidate for candidate in candidates}
    matches = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[matches[0]]}?" if matches else ""


def _kind(value: PropertyValue) -> str:
    """Return the type of a value in words, without the value: it may be a secret."""
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    if isinstance(value, Mapping):
        return "an object"
    return names.get(type(value), "a list" if isinstance(value, list) else "null")
