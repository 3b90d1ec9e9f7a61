"""Property values: conversion between the engine's messages and plain Python.

In a message a secret is a structure with a signature, and an unknown is one of a few reserved
strings. Here a secret is `Secret(value)` and an unknown is `UNKNOWN`; every other value is None,
bool, int, float, str, list or dict. A path is a tuple of keys and list indexes from the root.
"""

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.struct_pb2 import ListValue, Struct, Value

from cloudtwin.providers.protocol.errors import ProviderError

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105  the marker of the protocol, not a secret
OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
REDACTED = "[secret]"
ASSETS = {"c44067f5952c0a294b673a41bacd8c17", "0def7320c3a5731c473e5ecbe6d01bc7"}
# One marker for each type that an unknown value may have.
UNKNOWN_STRING = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
UNKNOWNS = {
    UNKNOWN_STRING,
    "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
    "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
    "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
    "030794c1-ac77-496b-92df-f27374a8bd58",
    "e48ece36-62e2-4504-bad9-02848725956a",
    "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
}

Path: TypeAlias = tuple[str | int, ...]
PropertyValue: TypeAlias = Any  # a recursive type would need narrowing at each access
Object: TypeAlias = dict[str, Any]


class Unknown:
    """A value that is known only after the update."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __deepcopy__(self, memo: object) -> "Unknown":
        return self


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Secret:
    """A value that is never shown and that is encrypted in the state."""

    value: Any

    def __repr__(self) -> str:
        return "Secret(...)"


def from_struct(struct: Struct) -> Object:
    """Return the values of a message. Numbers without a fraction become int, as in Kubernetes."""
    return {key: _from_value(value) for key, value in struct.fields.items()}


def _from_value(value: Value) -> PropertyValue:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _from_object(value.struct_value)
    if kind == "list_value":
        return [_from_value(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    if kind == "string_value":
        return UNKNOWN if value.string_value in UNKNOWNS else value.string_value
    if kind == "bool_value":
        return value.bool_value
    return None


def _from_object(struct: Struct) -> PropertyValue:
    mark = struct.fields[SIGNATURE].string_value if SIGNATURE in struct.fields else ""
    if mark == SECRET:
        return Secret(_from_value(struct.fields["value"]))
    if mark == OUTPUT:
        value = _from_value(struct.fields["value"]) if "value" in struct.fields else UNKNOWN
        is_secret = "secret" in struct.fields and struct.fields["secret"].bool_value
        return Secret(value) if is_secret else value
    if mark in ASSETS:
        raise ProviderError(
            "an asset or archive is not a valid value here; read the file in the program"
        )
    return from_struct(struct)


def to_struct(values: Mapping[str, PropertyValue]) -> Struct:
    """Return the message for values."""
    return Struct(fields={key: _to_value(value) for key, value in values.items()})


def _to_value(value: PropertyValue) -> Value:
    if value is None:
        return Value(null_value=0)  # type: ignore[arg-type]  # the enum's only value
    if isinstance(value, bool):
        return Value(bool_value=value)
    if isinstance(value, (int, float)):
        return Value(number_value=value)
    if isinstance(value, str):
        return Value(string_value=value)
    if isinstance(value, Unknown):
        return Value(string_value=UNKNOWN_STRING)
    if isinstance(value, Secret):
        return Value(struct_value=to_struct({SIGNATURE: SECRET, "value": value.value}))
    if isinstance(value, Mapping):
        return Value(struct_value=to_struct(value))
    return Value(list_value=ListValue(values=[_to_value(item) for item in value]))


def plain(value: PropertyValue) -> PropertyValue:
    """Return a value without secret marks. Unknowns stay."""
    if isinstance(value, Secret):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def without_nulls(value: PropertyValue) -> PropertyValue:
    """Return a value without keys whose value is null."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def has_unknown(value: PropertyValue) -> bool:
    """Return True if a value contains an unknown."""
    if isinstance(value, Unknown):
        return True
    if isinstance(value, Secret):
        return has_unknown(value.value)
    if isinstance(value, Mapping):
        return any(has_unknown(item) for item in value.values())
    return isinstance(value, list) and any(has_unknown(item) for item in value)


def secret_paths(value: PropertyValue, path: Path = ()) -> frozenset[Path]:
    """Return the paths of secrets, without paths inside another secret.

    A list with a secret is secret as a whole: a service may return its items in another order.
    """
    if isinstance(value, Secret):
        return frozenset({path})
    if isinstance(value, Mapping):
        return frozenset().union(*(secret_paths(item, (*path, key)) for key, item in value.items()))
    if isinstance(value, list) and any(secret_paths(item) for item in value):
        return frozenset({path})
    return frozenset()


def with_secrets(value: PropertyValue, paths: frozenset[Path], path: Path = ()) -> PropertyValue:
    """Return a value with the values at `paths` marked as secret.

    Absent keys of an object are ignored. Where `paths` lead into an object and the value is not an object, the whole
    value is marked.
    """
    if path in paths:
        return Secret(plain(value))
    if isinstance(value, Mapping):
        return {key: with_secrets(item, paths, (*path, key)) for key, item in value.items()}
    has_secret = any(secret[: len(path)] == path for secret in paths)
    return Secret(plain(value)) if has_secret else value


def secret_texts(value: PropertyValue, *, secret: bool = False) -> list[str]:
    """Return the texts in the secret parts of a value."""
    if isinstance(value, Secret):
        return secret_texts(value.value, secret=True)
    if isinstance(value, str):
        return [value] if secret and value else []
    parts = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    )
    return [text for part in parts for text in secret_texts(part, secret=secret)]


def redact(message: str, texts: Sequence[str]) -> str:
    """Return a message without secret texts, written plainly or as Python writes them."""
    for text in sorted(texts, key=len, reverse=True):
        for form in (reprlib.repr(text), repr(text), text):
            message = message.replace(form, REDACTED)
    return message


def path_text(path: Path) -> str:
    """Return a path in Pulumi's spelling: `spec.containers[0].image`, `metadata.labels["a.b/c"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif any(mark in step for mark in '.[]"'):
            escaped = step.replace('"', '\\"')
            text += f'["{escaped}"]'
        else:
            text += f".{step}" if text else step
    return text


def path_starts_with(path: Path, prefix: Sequence[str]) -> bool:
    """Return True if a path begins with a prefix, in which `*` matches any key or index."""
    return len(path) >= len(prefix) and all(
        pattern in ("*", step) for step, pattern in zip(path, prefix, strict=False)
    )


_STEP = re.compile(r'\["((?:[^"\\]|\\.)*)"\]|\[(\d+|\*)\]|\.?([^.\[\]"]+)')


def parse_path(text: str) -> Path:
    """Parse a path in Pulumi's spelling. `*` matches every key or index."""
    return tuple(
        int(position) if position.isdigit() else position or name or quoted.replace('\\"', '"')
        for quoted, position, name in _STEP.findall(text)
    )
