"""The volume in which a worker caches shards of an object store.

It is an emptyDir or a generic ephemeral volume: the `restricted` standard forbids a hostPath. The cache therefore
lives as long as the pod: a restarted container finds it, and a new pod fills a new cache.
"""

from typing import Any

from components.config import DataCacheConfig, quantity_value
from everstep.catalog.trainer_options import Value

NAME, MOUNT = "data-cache", "/everstep-cache"
SHARD_FRACTION = 0.95
"""Fraction of the volume for shards: the kubelet evicts a pod that exceeds the size, and indexes need space too."""

FREE_PERCENT = 15
"""Percentage of a node's disk that stays free: the kubelet evicts pods if less than 10 % is free."""


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
    """Return the mount of the volume."""
    return {"name": NAME, "mountPath": MOUNT}


def options(cache: DataCacheConfig) -> dict[str, Value]:
    """Return the options with which the trainer uses the cache."""
    on_node = cache.storage_class is None
    return {
        "data": MOUNT,
        "data_store": cache.source,
        "data_cache_bytes": int(quantity_value(cache.size) * SHARD_FRACTION),
        "data_cache_free_percent": FREE_PERCENT if on_node else 0,
    }
