"""The machines behind a cloud's pools: starts, interruptions, autoscaling and the spot market.

Providers put pools into a `PoolStore`, enable the drivers and pod identities of a cluster, and wait. A daemon does the
rest, so that machines start and stop between two commands as well.

The modules `autoscaler`, `fleet`, `market`, `observation`, `prices`, `shortage` and `trace` are pure. The other
modules have effects; `__main__` is the daemon.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudtwin.capacity.config import (
        MarketConfig,
        close_market,
        compress_time,
        open_market,
        replay_market,
    )
    from cloudtwin.capacity.control_plane import (
        ControlPlane,
        associate_pod_identity,
        disable_driver,
        dissociate_pod_identity,
        enable_driver,
        ensure_control_plane,
        wait,
    )
    from cloudtwin.capacity.limits import CapacityLimits
    from cloudtwin.capacity.market import MarketParameters
    from cloudtwin.capacity.pools import Capacity, Pool, PoolStore, cloud_labels, display_names
    from cloudtwin.capacity.quotas import QuotaStore
    from cloudtwin.capacity.reclaiming import reclaim
    from cloudtwin.capacity.trace import Trace

__all__ = [
    "Capacity",
    "CapacityLimits",
    "ControlPlane",
    "MarketConfig",
    "MarketParameters",
    "Pool",
    "PoolStore",
    "QuotaStore",
    "Trace",
    "associate_pod_identity",
    "close_market",
    "cloud_labels",
    "compress_time",
    "disable_driver",
    "display_names",
    "dissociate_pod_identity",
    "enable_driver",
    "ensure_control_plane",
    "open_market",
    "reclaim",
    "replay_market",
    "wait",
]

_MODULES = {
    "config": ("MarketConfig", "close_market", "compress_time", "open_market", "replay_market"),
    "control_plane": (
        "ControlPlane",
        "associate_pod_identity",
        "disable_driver",
        "dissociate_pod_identity",
        "enable_driver",
        "ensure_control_plane",
        "wait",
    ),
    "limits": ("CapacityLimits",),
    "market": ("MarketParameters",),
    "pools": ("Capacity", "Pool", "PoolStore", "cloud_labels", "display_names"),
    "quotas": ("QuotaStore",),
    "reclaiming": ("reclaim",),
    "trace": ("Trace",),
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: a preview needs pools and no machines."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
