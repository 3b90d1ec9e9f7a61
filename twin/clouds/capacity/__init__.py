"""The part of a cloud that acts: pools become machines, spot machines are taken back, an autoscaler watches.

Providers declare: they put pools into a `PoolStore`, name the drivers a cluster has, and wait. A daemon does the
rest, so that machines come and go between two commands as well, as in a cloud.

Pure: `fleet`, `market`, `autoscaler`, `watcher`. Shell: `pools`, `supply`, `settings`, `control_plane`, `reclaiming`,
`scaling`, and `__main__`, which is the daemon.
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
    from twin.clouds.capacity.market import Parameters
    from twin.clouds.capacity.pools import Capacity, Pool, PoolStore, cloud_labels
    from twin.clouds.capacity.reclaiming import reclaim
    from twin.clouds.capacity.settings import Settings, close_market, compress_time, open_market
    from twin.clouds.capacity.supply import Supply

__all__ = [
    "Capacity",
    "ControlPlane",
    "Parameters",
    "Pool",
    "PoolStore",
    "Settings",
    "Supply",
    "close_market",
    "cloud_labels",
    "compress_time",
    "disable_driver",
    "enable_driver",
    "ensure_control_plane",
    "open_market",
    "reclaim",
    "wait",
]

_HOMES = {
    "control_plane": (
        "ControlPlane",
        "disable_driver",
        "enable_driver",
        "ensure_control_plane",
        "wait",
    ),
    "market": ("Parameters",),
    "pools": ("Capacity", "Pool", "PoolStore", "cloud_labels"),
    "reclaiming": ("reclaim",),
    "settings": ("Settings", "close_market", "compress_time", "open_market"),
    "supply": ("Supply",),
}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for: a preview needs pools and no machines."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
