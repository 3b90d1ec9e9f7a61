"""Defaults that depend on the kind of cluster.

They are filled into what the stack file says before it is checked, so that whoever reads the typed
configuration finds a value and asks nowhere which cloud it is on. The pages of options show them
from this table too.
"""

from collections.abc import Mapping
from typing import Any

NOTICE_SECONDS = {"aks": 30, "eks": 120}
"""What a spot machine is told before it goes: Azure's Preempt, EC2's instance-action."""

_PUBLISHED = "ghcr.io/everstep/{}:0.1.0"  # where nodes of a cloud find the project's own images

_ON_A_CLOUD: dict[str, object] = {
    "etcd.image": "quay.io/coreos/etcd:v3.5.35",
    "controller.image": _PUBLISHED.format("controller"),
    "job.image": _PUBLISHED.format("trainer"),
    "platform.gpuPlugin.enabled": True,
    "platform.metrics.enabled": True,
    "platform.spot.enabled": True,
    "platform.spot.image": _PUBLISHED.format("spot"),
}

DEFAULTS: dict[str, dict[str, object]] = {
    "eks": {
        "storage.kind": "fsx",
        "job.graceSeconds": 110,
        "etcd.persistence": "memory",  # EKS brings no StorageClass that works
        **_ON_A_CLOUD,
    },
    "aks": {
        "storage.kind": "blob",
        "job.graceSeconds": 25,
        "etcd.persistence": "disk",
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
    special = dict(DEFAULTS.get(kind, {})) if isinstance(kind, str) else {}
    if _upstream(data.get("controller")):
        special.pop("controller.image", None)  # that of the maintained one
    filled = dict(data)
    for path, value in {**_KINDS, **special}.items():
        _fill(filled, path.split("."), value)
    return filled


def _upstream(controller: object) -> bool:
    return isinstance(controller, Mapping) and controller.get("kind") == "upstream"


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
