"""What changed between a resource's last inputs and its new ones, and what that needs. Pure."""

import re
from collections.abc import Mapping, Sequence

from twin.clouds.model import ResourceType
from twin.pulumi.provider.changes import Diff, FieldDiff, changes
from twin.pulumi.provider.convert import Path, Plain, has_unknown, plain, without_nulls


def compare(
    kind: ResourceType,
    name: str,
    old: Mapping[str, Plain],
    new: Mapping[str, Plain],
    ignored: Sequence[str],
) -> Diff:
    """Compare last and new inputs.

    Args:
        kind: says what cannot be changed in place.
        name: of the program's resource; tells an invented name from a chosen one.
        old: the last inputs.
        new: the new inputs; an unknown differs from everything.
        ignored: property paths of `ignore_changes`.
    """
    before, after = without_nulls(plain(old)), without_nulls(plain(new))
    fields = tuple(
        FieldDiff(path, change, needs_new(kind, path))
        for path, change in changes(before, after, ignored)
    )
    replaced = any(field.replaces for field in fields)
    return Diff(fields, delete_first=replaced and _same_name(kind, name, before, after))


def needs_new(kind: ResourceType, path: Path) -> bool:
    """Tell whether a change at a path cannot be made in place."""
    frozen = (*kind.immutable, *((kind.naming.property,) if kind.naming else ()))
    return any(_starts(path, each.split(".")) for each in frozen)


def _starts(path: Path, prefix: list[str]) -> bool:
    return len(path) >= len(prefix) and all(
        want in ("*", step) for step, want in zip(path, prefix, strict=False)
    )


def _same_name(
    kind: ResourceType, name: str, old: Mapping[str, Plain], new: Mapping[str, Plain]
) -> bool:
    """Tell whether old and new cannot stand side by side because both bear one chosen name."""
    if kind.naming is None:
        return bool(kind.unique)  # what is unique by its own inputs makes room first
    key = kind.naming.property
    chosen = new.get(key)
    if isinstance(chosen, str) and is_automatic(name, chosen):
        return False
    return has_unknown(chosen) or old.get(key) == chosen


def is_automatic(resource: str, name: str) -> bool:
    """Tell whether the provider invented a name: the resource's own and seven or eight digits."""
    return re.fullmatch(re.escape(resource) + "-?[0-9a-f]{7,8}", name) is not None
