"""The scheduler's rule for taints and tolerations."""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.objects import Taint

SCHEDULING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})  # PreferNoSchedule is not a constraint


def tolerates_all(tolerations: Sequence[Mapping[str, Any]], taints: Sequence[Taint]) -> bool:
    """Return True if a pod with these tolerations may be scheduled to a node with these taints."""
    return all(
        any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.effect in SCHEDULING_EFFECTS
    )


def tolerates(toleration: Mapping[str, Any], taint: Taint) -> bool:
    """Return True if a toleration matches a taint."""
    if toleration.get("effect") not in (None, "", taint.effect):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.key)
    return toleration.get("key") == taint.key and (toleration.get("value") or "") == taint.value
