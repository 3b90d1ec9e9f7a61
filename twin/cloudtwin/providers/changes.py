"""Names that the provider generates, and the difference between old and new inputs. Pure."""

import hashlib
import re
from collections.abc import Mapping, Sequence

from cloudtwin.providers.model import ResourceType
from cloudtwin.providers.protocol.diff import Diff, FieldDiff, differing_paths
from cloudtwin.providers.protocol.values import (
    UNKNOWN,
    Object,
    Path,
    PropertyValue,
    Secret,
    has_unknown,
    path_starts_with,
    plain,
    without_nulls,
)

# Separator before the hexadecimal digits of a generated name, and their number.
DIGITS = {"aws": ("-", 7), "azure-native": ("", 8)}
PREFIX_SUFFIX = 26  # characters that the AWS provider appends to a name prefix


def with_name(
    kind: ResourceType,
    resource: str,
    inputs: Object,
    old: Mapping[str, PropertyValue],
    seed: bytes,
) -> Object:
    """Return the inputs with a generated name if the program sets none.

    A generated name is kept. If the program no longer sets a name, the Azure provider keeps the old name, and the AWS
    provider generates a new one (pulumi-terraform-bridge, `applyDefaults`).

    Args:
        kind: type of the resource.
        resource: name of the program's resource.
        inputs: new inputs.
        old: last inputs; empty for a new or replaced resource.
        seed: random seed of the engine, the same at preview and update.
    """
    naming = kind.naming
    if naming is None or not naming.generated or inputs.get(naming.property) is not None:
        return inputs
    name = old.get(naming.property)
    if name is None or not _is_kept(kind, old, inputs):
        digest = hashlib.sha256(seed + resource.encode()).hexdigest()
        separator, digits = DIGITS[_cloud(kind)]
        declared_prefix = inputs.get(f"{naming.property}Prefix")
        prefix = plain(declared_prefix)
        if isinstance(prefix, str):
            name = prefix + digest[:PREFIX_SUFFIX]
            name = Secret(name) if isinstance(declared_prefix, Secret) else name
        elif has_unknown(prefix):
            name = UNKNOWN
        else:
            name = f"{naming.start}{resource}{separator}{digest[:digits]}"
    return {**inputs, naming.property: name}


def _is_kept(
    kind: ResourceType, old: Mapping[str, PropertyValue], inputs: Mapping[str, PropertyValue]
) -> bool:
    """Return True if the last name is kept.

    Azure always keeps it; AWS keeps it if it looks generated, or if both the old and the new inputs set a prefix.
    """
    if kind.naming is None or _cloud(kind) != "aws":
        return True
    key, (separator, digits) = kind.naming.property, DIGITS["aws"]
    has_prefix = all(values.get(f"{key}Prefix") is not None for values in (old, inputs))
    generated_end = rf"(?s).*{re.escape(separator)}[0-9a-f]{{{digits}}}"
    return has_prefix or re.fullmatch(generated_end, str(plain(old[key]))) is not None


def compare(
    kind: ResourceType,
    name: str,
    old: Mapping[str, PropertyValue],
    new: Mapping[str, PropertyValue],
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
    replacing = kind.replacing_inputs(old_inputs, new_inputs) if kind.replacing_inputs else ()
    fields = tuple(
        FieldDiff(path, difference, replaces(kind, path) or str(path[0]) in replacing)
        for path, difference in differing_paths(old_inputs, new_inputs, ignored)
    )
    replaced = any(field.replaces for field in fields)
    return Diff(fields, delete_first=replaced and _same_name(kind, name, old_inputs, new_inputs))


def replaces(kind: ResourceType, path: Path) -> bool:
    """Return True if a change at a path replaces the resource."""
    immutable_paths = (*kind.immutable, *((kind.naming.property,) if kind.naming else ()))
    return any(path_starts_with(path, prefix.split(".")) for prefix in immutable_paths)


def _same_name(
    kind: ResourceType,
    name: str,
    old: Mapping[str, PropertyValue],
    new: Mapping[str, PropertyValue],
) -> bool:
    """Return True if old and new cannot coexist: the program sets the same name for both."""
    if kind.naming is None:
        return bool(kind.unique)  # unique by its inputs: the old resource is deleted first
    key = kind.naming.property
    new_name = new.get(key)
    if new.get(f"{key}Prefix") is not None or is_generated(kind, name, new_name):
        return False
    return has_unknown(new_name) or old.get(key) == new_name


def is_generated(kind: ResourceType, resource: str, name: PropertyValue) -> bool:
    """Return True for a name that `with_name` generated from the name of the program's resource."""
    start = kind.naming.start if kind.naming else ""
    separator, digits = DIGITS[_cloud(kind)]
    pattern = rf"{re.escape(start + resource + separator)}[0-9a-f]{{{digits}}}"
    return isinstance(name, str) and re.fullmatch(pattern, name) is not None


def _cloud(kind: ResourceType) -> str:
    return kind.token.partition(":")[0]
