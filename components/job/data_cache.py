"""The volume of a worker in which it keeps shards of an object store.

It is an emptyDir or a generic ephemeral volume, which the `restricted` standard allows; a hostPath is not. So
the cache of a node lives as long as the pod: a container that restarts finds it, a new pod fills another one.
"""

from typing import Any

from components.config import DataCacheConfig, quantity_value
from everstep.catalog.trainer_options import Value

NAME, MOUNT = "data-cache", "/everstep-cache"
USABLE = 0.95
"""Part of the volume for shards: the kubelet evicts a pod that writes more than the size, and indexes take some."""

FREE_PERCENT = 15
"""Part of a node's disk that stays free: the kubelet evicts pods if less than 10 % are."""


def volume(cache: DataCacheConfig) -> dict[str, Any]:
    """Return the volume, with the field names of the API."""
    if cache.storage_class is None:
        return {"name": NAME, "emptyDir": {"sizeLimit": cache.size}}
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": cache.storage_class,
        "resources": {"requests": {"storage": cache.size}},
    }
    return {"name": NAME, "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}


def mount() -> dict[str, Any]:
    """Return its mount."""
    return {"name": NAME, "mountPath": MOUNT}


def options(cache: DataCacheConfig) -> dict[str, Value]:
    """Return the options of the trainer."""
    on_node = cache.storage_class is None
    return {
        "data": MOUNT,
        "data_store": cache.source,
        "data_cache_bytes": int(quantity_value(cache.size) * USABLE),
        "data_cache_free_percent": FREE_PERCENT if on_node else 0,
    }
