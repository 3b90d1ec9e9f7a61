"""Defaults that depend on the kind of cluster or storage.

They are merged into the stack file before validation, so the code that reads the typed
configuration does not depend on the cloud. The generated option pages use the same table.
"""

from collections.abc import Mapping
from typing import Any

from everstep.catalog.names import RELEASED_IMAGE
from everstep.catalog.timing import GRACE_SECONDS

_ON_A_CLOUD: dict[str, object] = {
    "etcd.image": "quay.io/coreos/etcd:v3.5.35",
    "etcd.rejoinImage": RELEASED_IMAGE.format("etcd-rejoin"),
    "controller.image": RELEASED_IMAGE.format("controller"),
    "job.image": RELEASED_IMAGE.format("trainer"),
    "platform.gpuPlugin.enabled": True,
    "platform.metrics.enabled": True,
    "platform.spot.enabled": True,
    "platform.spot.image": RELEASED_IMAGE.format("spot"),
}

DEFAULTS: dict[str, dict[str, object]] = {
    "eks": {
        "storage.kind": "fsx",
        "job.graceSeconds": GRACE_SECONDS["eks"],
        "etcd.persistence": "memory",  # EKS has no working default StorageClass
        **_ON_A_CLOUD,
    },
    "aks": {
        "storage.kind": "blob",
        "job.graceSeconds": GRACE_SECONDS["aks"],
        "etcd.persistence": "disk",
        **_ON_A_CLOUD,
    },
}
"""Kind of cluster -> dotted key -> default, where it differs from the model's own."""

STORAGE_DEFAULTS: dict[str, dict[str, object]] = {
    "claim": {"etcd.persistence": "memory"},  # its volume is on the network
}
"""Kind of storage -> dotted key -> default, where it differs from the model's own."""

_DEFAULT_KINDS: dict[str, object] = {"cluster.kind": "existing", "storage.kind": "hostpath"}


def with_defaults(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the mapping with the defaults of its kinds of cluster and storage filled in.

    A section that is not a mapping is left unchanged; validation refuses it.
    """
    defaults = {
        **DEFAULTS.get(_kind(data.get("cluster")), {}),
        **STORAGE_DEFAULTS.get(_kind(data.get("storage")), {}),
    }
    if _is_upstream(data.get("controller")):
        defaults.pop("controller.image", None)  # only the maintained controller has a default image
    result = dict(data)
    for path, value in {**_DEFAULT_KINDS, **defaults}.items():
        _fill(result, path.split("."), value)
    return result


def _kind(section: object) -> str:
    """Return the kind of a section; empty if it has none."""
    kind = section.get("kind") if isinstance(section, Mapping) else None
    return kind if isinstance(kind, str) else ""


def _is_upstream(controller: object) -> bool:
    return isinstance(controller, Mapping) and controller.get("kind") == "upstream"


def _fill(section: dict[str, Any], path: list[str], value: object) -> None:
    """Set a missing value, copying each mapping along the path."""
    key, *remaining = path
    if not remaining:
        section.setdefault(key, value)
        return
    inner = section.get(key, {})
    if isinstance(inner, Mapping):
        section[key] = dict(inner)
        _fill(section[key], remaining, value)
