"""Differences between two sets of inputs, field by field.

Each provider decides whether a difference needs an update or a new resource.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulumi.runtime.proto import provider_pb2 as pb

from cloudtwin.providers.protocol.values import Path, PropertyValue, has_unknown, path_text


class DiffKind(StrEnum):
    """Kind of difference of a field."""

    ADD = "ADD"
    DELETE = "DELETE"
    UPDATE = "UPDATE"


@dataclass(frozen=True)
class FieldDiff:
    """One field that differs.

    Attributes:
        path: the field.
        kind: kind of difference.
        replaces: True if the difference needs a new resource.
    """

    path: Path
    kind: DiffKind
    replaces: bool


@dataclass(frozen=True)
class Diff:
    """All fields that differ.

    Attributes:
        fields: the fields.
        delete_first: True if old and new resource have the same name and cannot exist together.
    """

    fields: tuple[FieldDiff, ...]
    delete_first: bool

    @property
    def replaces(self) -> tuple[str, ...]:
        """The fields that need a new resource, in Pulumi's spelling."""
        return tuple(path_text(field.path) for field in self.fields if field.replaces)

    def response(self) -> pb.DiffResponse:
        """Return the differences as the engine's message."""
        response = pb.DiffResponse
        return response(
            changes=response.DIFF_SOME if self.fields else response.DIFF_NONE,
            diffs=sorted({str(field.path[0]) for field in self.fields}),
            replaces=self.replaces,
            deleteBeforeReplace=self.delete_first,
            hasDetailedDiff=True,
            detailedDiff={path_text(field.path): _property_diff(field) for field in self.fields},
        )


def differing_paths(
    old: PropertyValue, new: PropertyValue, ignored: Sequence[str]
) -> Iterator[tuple[Path, DiffKind]]:
    """Yield the paths that differ, and how.

    Args:
        old: the last inputs, without nulls.
        new: the new inputs; an unknown value differs from every value.
        ignored: property paths of `ignore_changes`; paths below them are ignored too.
    """
    for path, kind in _compare(old, new, ()):
        if not _is_ignored(path_text(path), ignored):
            yield path, kind


def _compare(old: PropertyValue, new: PropertyValue, path: Path) -> Iterator[tuple[Path, DiffKind]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _compare_member(old, new, key, (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        old_items, new_items = dict(enumerate(old)), dict(enumerate(new))
        for index in sorted({*old_items, *new_items}):
            yield from _compare_member(old_items, new_items, index, (*path, index))
    elif has_unknown(new) or old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, DiffKind.UPDATE


def _compare_member(
    old: Mapping[PropertyValue, PropertyValue],
    new: Mapping[PropertyValue, PropertyValue],
    key: PropertyValue,
    path: Path,
) -> Iterator[tuple[Path, DiffKind]]:
    if key not in old:
        yield path, DiffKind.ADD
    elif key not in new:
        yield path, DiffKind.DELETE
    else:
        yield from _compare(old[key], new[key], path)


def _is_ignored(path: str, ignored: Sequence[str]) -> bool:
    return any(
        path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")) for prefix in ignored
    )


def _property_diff(field: FieldDiff) -> pb.PropertyDiff:
    name = f"{field.kind}_REPLACE" if field.replaces else str(field.kind)
    return pb.PropertyDiff(kind=pb.PropertyDiff.Kind.Value(name), inputDiff=True)
