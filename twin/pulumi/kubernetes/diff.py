"""What changed between the program's last inputs and its new ones, field by field.

Inputs are compared with inputs. What the API server filled in is in neither, so it is never a
difference; what others changed in the cluster becomes one only by a refresh, which rewrites the
last inputs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from twin.pulumi.kubernetes.convert import Path, Plain, has_unknown, path_text, plain, without_nulls
from twin.pulumi.kubernetes.immutable import Mutable, needs_new_object
from twin.pulumi.kubernetes.objects import AUTO_NAMED, flag, metadata


class Change(StrEnum):
    """How a field differs."""

    ADD = "ADD"
    DELETE = "DELETE"
    UPDATE = "UPDATE"


@dataclass(frozen=True)
class FieldDiff:
    """One field that differs, and whether that needs a new object."""

    path: Path
    change: Change
    replaces: bool


@dataclass(frozen=True)
class Diff:
    """All that differs; delete_first where old and new object would bear the same name."""

    fields: tuple[FieldDiff, ...]
    delete_first: bool

    @property
    def replaces(self) -> tuple[str, ...]:
        """The fields that need a new object, as Pulumi writes them."""
        return tuple(path_text(field.path) for field in self.fields if field.replaces)


def compare(
    old: Mapping[str, Plain], new: Mapping[str, Plain], ignored: Sequence[str], mutable: Mutable
) -> Diff:
    """Compare last and new inputs.

    Args:
        old: the last inputs; secret marks do not count.
        new: the new inputs; an unknown differs from everything.
        ignored: property paths of `ignore_changes`; what is below one is ignored too.
        mutable: the provider's wishes for ConfigMap and Secret.
    """
    before, after = without_nulls(plain(old)), without_nulls(plain(new))
    fields = tuple(
        FieldDiff(path, change, needs_new_object(before, path, mutable))
        for path, change in _changes(before, after, ())
        if not _is_ignored(path_text(path), ignored)
    )
    replaced = any(field.replaces for field in fields)
    return Diff(fields, delete_first=replaced and _same_name(before, after))


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


def _same_name(old: Mapping[str, Plain], new: Mapping[str, Plain]) -> bool:
    """Tell whether old and new object cannot stand side by side.

    An automatic name is no obstacle: the new object gets a fresh one. An unknown name might be the
    old one.
    """
    if flag(new, AUTO_NAMED):
        return False
    before, after = metadata(old), metadata(new)
    return all(
        has_unknown(after.get(field)) or before.get(field) == after.get(field)
        for field in ("name", "namespace")
    ) and old.get("kind") == new.get("kind")
