"""What changed between the program's last inputs and its new ones, field by field.

Inputs are compared with inputs. What the API server filled in is in neither, so it is never a
difference; what others changed in the cluster becomes one only by a refresh, which rewrites the
last inputs.
"""

from collections.abc import Mapping, Sequence

from twin.pulumi.kubernetes.immutable import Mutable, needs_new_object
from twin.pulumi.kubernetes.objects import AUTO_NAMED, flag, metadata
from twin.pulumi.provider.changes import Diff, FieldDiff, changes
from twin.pulumi.provider.convert import Plain, has_unknown, plain, without_nulls


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
        for path, change in changes(before, after, ignored)
    )
    replaced = any(field.replaces for field in fields)
    return Diff(fields, delete_first=replaced and _same_name(before, after))


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
