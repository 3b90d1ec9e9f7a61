"""What differs between two sets of inputs, field by field: what every provider says of a change.

What a difference needs, an update or a new resource, is each provider's own to say.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pulumi.runtime.proto import provider_pb2 as pb

from twin.pulumi.provider.convert import Path, Plain, has_unknown, path_text


class Change(StrEnum):
    """How a field differs."""

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
        """The fields that need a new resource, as Pulumi writes them."""
        return tuple(path_text(field.path) for field in self.fields if field.replaces)

    def response(self) -> pb.DiffResponse:
        """Say it to the engine."""
        response = pb.DiffResponse
        return response(
            changes=response.DIFF_SOME if self.fields else response.DIFF_NONE,
            diffs=sorted({str(field.path[0]) for field in self.fields}),
            replaces=self.replaces,
            deleteBeforeReplace=self.delete_first,
            hasDetailedDiff=True,
            detailedDiff={path_text(field.path): _property_diff(field) for field in self.fields},
        )


def changes(old: Plain, new: Plain, ignored: Sequence[str]) -> Iterator[tuple[Path, Change]]:
    """Give the paths that differ, and how.

    Args:
        old: the last inputs, without nulls.
        new: the new inputs; an unknown differs from everything.
        ignored: property paths of `ignore_changes`; what is below one is ignored too.
    """
    for path, change in _changes(old, new, ()):
        if not _is_ignored(path_text(path), ignored):
            yield path, change


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


def _property_diff(field: FieldDiff) -> pb.PropertyDiff:
    name = f"{field.change}_REPLACE" if field.replaces else str(field.change)
    return pb.PropertyDiff(kind=pb.PropertyDiff.Kind.Value(name), inputDiff=True)
