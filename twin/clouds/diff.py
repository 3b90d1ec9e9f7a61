"""What changed between a resource's last inputs and its new ones, and what that needs. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twin.clouds.model import ResourceType
from twin.pulumi.kubernetes.convert import Path, Plain, has_unknown, path_text, plain, without_nulls


class Change(StrEnum):
    """How a field differs; the names are the engine's."""

    ADD = "ADD"
    DELETE = "DELETE"
    UPDATE = "UPDATE"


@dataclass(frozen=True)
class FieldDiff:
    """One field that differs, and whether that needs a new resource."""

    path: Path
    change: Change
    replaces: bool


@dataclass(frozen=True)
class Diff:
    """All that differs; delete_first where old and new would bear the same name."""

    fields: tuple[FieldDiff, ...]
    delete_first: bool

    @property
    def replaces(self) -> tuple[str, ...]:
        """The properties that need a new resource."""
        return tuple(path_text(each.path) for each in self.fields if each.replaces)


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
        for path, change in _changes(before, after, ())
        if not _is_ignored(path_text(path), ignored)
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


def _changes(old: Plain, new: Plain, here: Path) -> Iterator[tuple[Path, Change]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _member(old, new, key, (*here, key))
    elif isinstance(old, list) and isinstance(new, list):
        befores, afters = dict(enumerate(old)), dict(enumerate(new))
        for at in sorted({*befores, *afters}):
            yield from _member(befores, afters, at, (*here, at))
    elif has_unknown(new) or old != new or isinstance(old, bool) != isinstance(new, bool):
        yield here, Change.UPDATE


def _member(
    old: Mapping[Plain, Plain], new: Mapping[Plain, Plain], key: Plain, path: Path
) -> Iterator[tuple[Path, Change]]:
    if key not in old:
        yield path, Change.ADD
    elif key not in new:
        yield path, Change.DELETE
    else:
        yield from _changes(old[key], new[key], path)


def _is_ignored(path: str, ignored: Sequence[str]) -> bool:
    return any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in ignored)


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
