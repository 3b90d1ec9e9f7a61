"""Defaults that depend on the kind of cluster.

They are filled into what the stack file says before it is checked, so that whoever reads the typed
configuration finds a value and asks nowhere which cloud it is on. The pages of options show them
from this table too.
"""

from collections.abc import Mapping
from typing import Any

SPOT_GRACE_SECONDS = {"aks": 25, "eks": 110}  # within notices of 30 and 120 seconds

_ON_A_CLOUD: dict[str, object] = {
    "etcd.image": "quay.io/coreos/etcd:v3.5.21",
    "etcd.persistence": "disk",
    "platform.gpuPlugin.enabled": True,
    "platform.metrics.enabled": True,
    "platform.spot.enabled": True,
}

DEFAULTS: dict[str, dict[str, object]] = {
    "eks": {
        "storage.kind": "fsx",
        "job.graceSeconds": SPOT_GRACE_SECONDS["eks"],
        **_ON_A_CLOUD,
    },
    "aks": {
        "storage.kind": "blob",
        "job.graceSeconds": SPOT_GRACE_SECONDS["aks"],
        **_ON_A_CLOUD,
    },
}
"""Kind of cluster -> dotted key -> default, where it differs from the model's own."""

_KINDS: dict[str, object] = {"cluster.kind": "existing", "storage.kind": "hostpath"}


def with_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """Give a copy of the mapping with the defaults of its kind of cluster filled in.

    What stands in the place of a section without being one is left for the checking to refuse.
    """
    cluster = data.get("cluster")
    kind = cluster.get("kind") if isinstance(cluster, Mapping) else None
    special = DEFAULTS.get(kind, {}) if isinstance(kind, str) else {}
    filled = dict(data)
    for path, value in {**_KINDS, **special}.items():
        _fill(filled, path.split("."), value)
    return filled


def _fill(section: dict[str, Any], path: list[str], value: object) -> None:
    """Set a value where nothing stands, copying each mapping on the way."""
    key, *rest = path
    if not rest:
        section.setdefault(key, value)
        return
    inside = section.get(key, {})
    if isinstance(inside, Mapping):
        section[key] = dict(inside)
        _fill(section[key], rest, value)
