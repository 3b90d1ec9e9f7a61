"""Differences between the program's last inputs and its new ones.

Inputs are compared with inputs. Fields that the API server fills in are in neither. Changes by
other clients show only after a refresh, which rewrites the last inputs.
"""

from collections.abc import Mapping, Sequence

from cloudtwin.providers.kubernetes.immutable import needs_new_object
from cloudtwin.providers.kubernetes.objects import AUTO_NAMED, is_enabled, metadata
from cloudtwin.providers.protocol.diff import Diff, FieldDiff, differing_paths
from cloudtwin.providers.protocol.values import (
    UNKNOWN,
    PropertyValue,
    has_unknown,
    plain,
    without_nulls,
)


def compare(
    old: Mapping[str, PropertyValue], new: Mapping[str, PropertyValue], ignored: Sequence[str]
) -> Diff:
    """Compare last and new inputs.

    Args:
        old: the last inputs; secret marks are ignored.
        new: the new inputs; an unknown value differs from every value.
        ignored: property paths of `ignore_changes`; paths below them are ignored too.
    """
    old_inputs, new_inputs = without_nulls(plain(old)), without_nulls(plain(new))
    fields = tuple(
        FieldDiff(path, kind, needs_new_object(old_inputs, path))
        for path, kind in differing_paths(old_inputs, new_inputs, ignored)
    )
    replaced = any(field.replaces for field in fields)
    return Diff(fields, delete_first=replaced and _same_name(old_inputs, new_inputs))


def _same_name(old: Mapping[str, PropertyValue], new: Mapping[str, PropertyValue]) -> bool:
    """Return True if old and new object have the same name, so that the old object must be deleted first.

    A new object with an automatic name gets another name. An unknown name may equal the old name.
    """
    if is_enabled(new, AUTO_NAMED):
        return False
    if plain(new.get("metadata")) == UNKNOWN:
        return old.get("kind") == new.get("kind")
    old_metadata, new_metadata = metadata(old), metadata(new)
    return all(
        has_unknown(new_metadata.get(field)) or old_metadata.get(field) == new_metadata.get(field)
        for field in ("name", "namespace")
    ) and old.get("kind") == new.get("kind")
