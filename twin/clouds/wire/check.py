"""Holds a program's inputs against what the SDK says: names, types, required fields, enums. Pure."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from twin.clouds.wire.model import Fields, Shape, Wire
from twin.pulumi.provider.convert import Path, Plain, Secret, Unknown

SHOWN_CHOICES = 12
TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


@dataclass(frozen=True)
class Mistake:
    """One input that cannot be.

    Attributes:
        path: where it stands.
        reason: what is wrong and, where it can be told, what is right.
    """

    path: Path
    reason: str


def check(wire: Wire, inputs: Mapping[str, Plain]) -> list[Mistake]:
    """List all that is wrong with a resource's inputs; an unknown is taken to be right."""
    return list(_Checker(wire.objects).fields(wire.inputs, inputs, ()))


class _Checker:
    def __init__(self, objects: Mapping[str, Fields]) -> None:
        self._objects = objects

    def fields(self, known: Fields, given: Mapping[str, Plain], here: Path) -> Iterator[Mistake]:
        for name, value in given.items():
            if name not in known:
                yield Mistake((*here, name), f"there is no such property{nearest(name, known)}")
            elif value is not None:
                yield from self.value(known[name].shape, value, (*here, name))
        for name, field in known.items():
            if field.required and given.get(name) is None:
                yield Mistake((*here, name), "it is required and missing")

    def value(self, shape: Shape, value: Plain, here: Path) -> Iterator[Mistake]:
        if isinstance(value, Secret):
            yield from self.value(shape, value.value, here)
        elif isinstance(value, Unknown) or shape in ("any", "asset"):
            return
        elif isinstance(shape, str):
            yield from _primitive(shape, value, here)
        else:
            yield from self._composed(shape, value, here)

    def _composed(self, shape: Mapping[str, Plain], value: Plain, here: Path) -> Iterator[Mistake]:
        ((kind, inner),) = shape.items()
        if kind == "enum":
            yield from one_of(inner, value, here)
        elif kind == "list":
            if not isinstance(value, list):
                yield Mistake(here, f"a list is expected, not {_kind(value)}")
                return
            for at, item in enumerate(value):
                yield from self.value(inner, item, (*here, at))
        elif not isinstance(value, Mapping):
            yield Mistake(here, f"an object is expected, not {_kind(value)}")
        elif kind == "map":
            for key, item in value.items():
                if item is not None:
                    yield from self.value(inner, item, (*here, key))
        else:
            yield from self.fields(self._objects[inner], value, here)


def _primitive(shape: str, value: Plain, here: Path) -> Iterator[Mistake]:
    fits = isinstance(value, TYPES[shape]) and (
        shape == "boolean" or not isinstance(value, bool)  # to Python a bool is an int
    )
    if not fits:
        article = "an" if shape == "integer" else "a"
        yield Mistake(here, f"{article} {shape} is expected, not {_kind(value)}")


def one_of(choices: list[Plain], value: Plain, here: Path) -> Iterator[Mistake]:
    """Refuse a value that is none of the choices, naming the nearest."""
    if value not in choices:
        some = ", ".join(map(str, choices[:SHOWN_CHOICES]))
        more = ", ..." if len(choices) > SHOWN_CHOICES else ""
        near = nearest(str(value), [str(each) for each in choices])
        yield Mistake(here, f"{value!r} is none of {some}{more}{near}")


def nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    """Return `; did you mean ...?`, or nothing where no name comes near."""
    lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[found[0]]}?" if found else ""


def _kind(value: Plain) -> str:
    """Say what a value is without showing it: it may be a secret."""
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    if isinstance(value, Mapping):
        return "an object"
    return names.get(type(value), "a list" if isinstance(value, list) else "null")
