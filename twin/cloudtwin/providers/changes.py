"""Names that the provider generates, and the difference between old and new inputs. Pure."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from cloudtwin.providers.model import ResourceType
from cloudtwin.providers.protocol.diff import Diff, FieldDiff, differing_paths
from cloudtwin.providers.protocol.values import (
    Object,
    Path,
    Plain,
    has_unknown,
    path_starts_with,
    plain,
    without_nulls,
)

DIGITS = {"aws": ("-", 7), "azure-native": ("", 8)}  # separator before the digits, and their number


def with_name(
    kind: ResourceType,
    cloud: str,
    resource: str,
    inputs: Object,
    old: Mapping[str, Plain],
    seed: bytes,
) -> Object:
    """Return the inputs with a generated name if the program sets none; an existing name is kept.

    Args:
        kind: type of the resource.
        cloud: aws or azure-native; determines the format.
        resource: name of the program's resource.
        inputs: new inputs.
        old: last inputs; empty for a new or replaced resource.
        seed: random seed of the engine, the same at preview and update.
    """
    naming = kind.naming
    if naming is None or not naming.generated or inputs.get(naming.property) is not None:
        return inputs
    prefix = inputs.get(f"{naming.property}Prefix")
    name = old.get(naming.property)
    if name is None:
        separator, digits = DIGITS[cloud]
        digest = hashlib.sha256(seed + resource.encode()).hexdigest()[:digits]
        prefix_text = f"{naming.start}{resource}{separator}"
        name = (prefix if isinstance(prefix, str) else prefix_text) + digest
    return {**inputs, naming.property: name}


def compare(
    kind: ResourceType,
    name: str,
    old: Mapping[str, Plain],
    new: Mapping[str, Plain],
    ignored: Sequence[str],
) -> Diff:
    """Return the difference between last and new inputs.

    Args:
        kind: type of the resource.
        name: name of the program's resource; distinguishes generated names from names that the program sets.
        old: last inputs.
        new: new inputs; an unknown value differs from everything.
        ignored: property paths of `ignore_changes`.
    """
    old_inputs, new_inputs = without_nulls(plain(old)), without_nulls(plain(new))
    fields = tuple(
        FieldDiff(path, difference, replaces(kind, path))
        for path, difference in differing_paths(old_inputs, new_inputs, ignored)
    )
    replaced = any(field.replaces for field in fields)
    return Diff(fields, delete_first=replaced and _same_name(kind, name, old_inputs, new_inputs))


def replaces(kind: ResourceType, path: Path) -> bool:
    """Return True if a change at a path replaces the resource."""
    immutable_paths = (*kind.immutable, *((kind.naming.property,) if kind.naming else ()))
    return any(path_starts_with(path, prefix.split(".")) for prefix in immutable_paths)


def _same_name(
    kind: ResourceType, name: str, old: Mapping[str, Plain], new: Mapping[str, Plain]
) -> bool:
    """Return True if old and new cannot coexist because both have the same name, set by the program."""
    if kind.naming is None:
        return bool(kind.unique)  # unique by its inputs: the old resource is deleted first
    key = kind.naming.property
    new_name = new.get(key)
    if isinstance(new_name, str) and is_generated(f"{kind.naming.start}{name}", new_name):
        return False
    return has_unknown(new_name) or old.get(key) == new_name


def is_generated(start: str, name: str) -> bool:
    """Return True for a generated name: a start and seven or eight hexadecimal digits."""
    return re.fullmatch(re.escape(start) + "-?[0-9a-f]{7,8}", name) is not None
