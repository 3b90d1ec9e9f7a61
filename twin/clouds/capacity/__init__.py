"""The part of a cloud that acts: pools become machines, spot machines are taken back, an autoscaler watches.

Providers declare: they put pools into a `PoolStore`, name the drivers a cluster has, and wait. A daemon does the
rest, so that machines come and go between two commands as well, as in a cloud.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twin.clouds.capacity.control_plane import (
        ControlPlane,
        disable_driver,
        enable_driver,
        ensure_control_plane,
        wait,
    )
    from twin.clouds.capacity.pools import Capacity, Pool, PoolStore, cloud_labels

__all__ = [
    "Capacity",
    "ControlPlane",
    "Pool",
    "PoolStore",
    "cloud_labels",
    "disable_driver",
    "enable_driver",
    "ensure_control_plane",
    "wait",
]

_HOMES = {
    "Capacity": "pools",
    "Pool": "pools",
    "PoolStore": "pools",
    "cloud_labels": "pools",
    "ControlPlane": "control_plane",
    "disable_driver": "control_plane",
    "enable_driver": "control_plane",
    "ensure_control_plane": "control_plane",
    "wait": "control_plane",
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for: a preview needs pools and no machines."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
