"""Variants of a resource's inputs with one changed value each. An oracle decides which of them are invalid."""

import copy
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cloudtwin.providers.schema.model import Fields, ResourceSchema, Shape

MANY = 1200  # entries or characters; above every limit except limits of whole documents
HUGE = 2**40
TEXTS = (
    "no spaces!", "-begins-with-a-dash", "ends-with-a-slash/", "ÜmläutsAndPßt", "UPPER_lower.123", "a//b", "a\nb",
    "${variable}", "192.168.1.1", "aws:reserved", "sg-name", "nonsuch",
)  # fmt: skip
BLOCKS = (
    "10.0.0.0/33",
    "10.0.0.7/16",
    "10.0.0.0",
    "300.1.1.0/24",
    "10.0.0.0/4",
    "fd00::/200",
    "nonsuch/16",
)
GENERATED_ID = re.compile(r"[a-z]*[g-z][a-z]*-0")
"""Beginning of an id such as vpc-0a1b2c; the digits of a random UUID do not match."""

IDS = ("vpc-xyz", "subnet_0123456789abcdef0", "lt-0123", "eipalloc", "sg-0123456789abcdefg")
ARNS = (
    "arn:aws:iam::12:role/short", "arn:aws:iam:role/nonsuch", "not-an-arn", "arn:aws:s3:::", "arn::::::",
    "arn:aws:iam::123456789012:role/with space",
)  # fmt: skip
NUMBERS = (-1, 0, -HUGE, HUGE)
WRONG_TAGS: tuple[tuple[str, Any], ...] = (
    ("too long: a key of a tag", {"k" * 129: "v"}),
    ("too long: a value of a tag", {"k": "v" * 257}),
    ("empty: a key of a tag", {"": "v"}),
    ("pattern: a value of a tag", {"k": "a#b"}),
    ("pattern: a key of a tag", {"a?b": "v"}),
    ("too many tags", {f"k{number}": "v" for number in range(201)}),
    ("wrong type: tags", ["k"]),
    ("wrong type: a value of a tag", {"k": {"a": "b"}}),
)  # fmt: skip

Path = tuple[str | int, ...]
MISSING = object()


@dataclass(frozen=True)
class Mutation:
    """One wrong variant.

    Attributes:
        description: kind of mistake and path of the input.
        valid_inputs: the inputs before the change.
        path: path of the change.
        value: the wrong value; MISSING removes it.
        certain: True if no service accepts it, even if the models allow it.
    """

    description: str
    valid_inputs: Mapping[str, Any]
    path: Path
    value: Any
    certain: bool = False

    @property
    def inputs(self) -> dict[str, Any]:
        """All inputs, with the mistake."""
        result: dict[str, Any] = copy.deepcopy(dict(self.valid_inputs))
        parent: Any = result
        for step in self.path[:-1]:
            parent = parent[step]
        if self.value is MISSING:
            parent.pop(self.path[-1])
        else:
            parent[self.path[-1]] = self.value
        return result


def mutations(
    inputs: Mapping[str, Any], generator: random.Random, *, has_tags: bool
) -> Iterator[Mutation]:
    """Yield the wrong variants of inputs.

    Args:
        inputs: valid inputs of one resource.
        generator: source of the positions of wrong characters.
        has_tags: True if the type has tags.
    """
    for path, value in leaves_and_branches(inputs):
        path_text = text_of(path)
        if path:
            yield Mutation(f"missing: {path_text}", inputs, path, MISSING)
            for description, wrong_value in wrong_values(value, generator):
                yield Mutation(f"{description}: {path_text}", inputs, path, wrong_value)
        if isinstance(value, Mapping) and not is_map(path):
            yield Mutation(
                f"unknown key: {path_text}", inputs, (*path, "nonsuch"), "x", certain=True
            )
    for description, wrong_value in WRONG_TAGS if has_tags else ():
        yield Mutation(description, inputs, ("tags",), wrong_value)


def undeclared_mutations(inputs: Mapping[str, Any], schema: ResourceSchema) -> Iterator[Mutation]:
    """Yield variants with a wrong value of an input that is not declared."""
    for path, shape in _absent_properties(inputs, schema.inputs, schema.objects, ()):
        for description, wrong_value in _wrong_values_of_shape(shape):
            yield Mutation(f"undeclared, {description}: {text_of(path)}", inputs, path, wrong_value)


def _absent_properties(
    value: Any,
    fields: Fields,
    objects: Mapping[str, Fields],
    parents: Path,
) -> Iterator[tuple[Path, Shape]]:
    """Yield the paths and shapes of the properties that an object, or an object in it, does not have."""
    for name, field in fields.items():
        if name not in value:
            yield (*parents, name), field.shape
            continue
        inner, shape, path = value[name], field.shape, (*parents, name)
        if isinstance(shape, Mapping) and "list" in shape and isinstance(inner, list) and inner:
            inner, shape, path = inner[0], shape["list"], (*path, 0)
        if isinstance(shape, Mapping) and "object" in shape and isinstance(inner, Mapping):
            yield from _absent_properties(inner, objects[shape["object"]], objects, path)


def _wrong_values_of_shape(shape: Shape) -> Iterator[tuple[str, Any]]:
    """Yield wrong values of a shape of the SDK."""
    if shape == "string":
        yield from (("wrong type", ["a"]), ("empty", ""), ("too long", "a" * MANY))
        yield from (("pattern", text) for text in (*TEXTS[:4], BLOCKS[0], ARNS[0], IDS[0]))
    elif shape in ("integer", "number"):
        yield from (("range", number) for number in NUMBERS)
        yield "wrong type", "many"
    elif shape == "boolean":
        yield "wrong type", "maybe"
    elif isinstance(shape, Mapping) and "enum" in shape:
        yield from (("enumeration", wrong_value) for wrong_value in ("nonsuch", "", 7))
    elif isinstance(shape, Mapping) and "list" in shape:
        yield from (("wrong type", "text"), ("empty", []))
        yield from (
            (description, [wrong_value])
            for description, wrong_value in _wrong_values_of_shape(shape["list"])
        )
    elif isinstance(shape, Mapping):
        yield from (("wrong type", "text"), ("empty", {}))


def leaves_and_branches(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield a value and all values within it, with their paths; of a list, the first entry only."""
    yield path, value
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves_and_branches(item, (*path, key))
    elif isinstance(value, list) and value:
        yield from leaves_and_branches(value[0], (*path, 0))


def is_map(path: Path) -> bool:
    """Return True if the keys at a path are the user's: tags, labels, metadata or configuration."""
    return bool(path) and path[-1] in ("tags", "labels", "metadata", "nodeLabels", "config")


def text_of(path: Path) -> str:
    """Return a path with * for every position in a list."""
    return ".".join("*" if isinstance(step, int) else step for step in path)


def wrong_values(value: Any, generator: random.Random) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a mistake and a wrong value that replaces this value."""
    if isinstance(value, bool):
        yield from (("wrong type", wrong_value) for wrong_value in ("maybe", ["a"], {"a": "b"}))
    elif isinstance(value, int | float):
        yield from (("wrong type", wrong_value) for wrong_value in ("many", ["a"], {"a": "b"}))
        yield from (("range", wrong_value) for wrong_value in (*NUMBERS, value + 0.5))
    elif isinstance(value, str):
        yield from _wrong_texts(value, generator)
    elif isinstance(value, list):
        yield from (("wrong type", wrong_value) for wrong_value in ("text", 7, {"a": "b"}))
        yield "empty", []
        yield "too many", [copy.deepcopy(value[0]) for _ in range(MANY)] if value else ["a"] * MANY
    elif isinstance(value, Mapping):
        yield from (("wrong type", wrong_value) for wrong_value in ("text", 7, ["a"]))
        yield "empty", {}


def _wrong_texts(value: str, generator: random.Random) -> Iterator[tuple[str, Any]]:
    yield from (("wrong type", wrong_value) for wrong_value in (["a"], {"a": "b"}))
    yield "empty", ""
    yield "too long", (value or "a") + "a" * MANY
    position = generator.randint(0, len(value))
    yield from (
        ("characters", value[:position] + wrong_value + value[position:]) for wrong_value in "! ü"
    )
    yield from (
        ("enumeration", wrong_value)
        for wrong_value in (value.swapcase(), f"{value}X", value[:-1])
        if wrong_value != value
    )
    samples = (
        BLOCKS
        if "/" in value and value[:1].isdigit()
        else ARNS
        if value.startswith("arn:")
        else TEXTS
    )
    yield from (("pattern", wrong_value) for wrong_value in samples)
    if GENERATED_ID.match(value):
        yield from (("id", wrong_value) for wrong_value in IDS)
