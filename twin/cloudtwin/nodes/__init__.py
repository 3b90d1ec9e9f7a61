"""Real Kubernetes nodes in namespaces of one Linux host, and operations on them."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudtwin.nodes.doctor import leftovers, twins
    from cloudtwin.nodes.model import (
        Leftover,
        MachineSpec,
        MachineStatus,
        Power,
        Role,
        RunningTwin,
        Taint,
        TwinStatus,
    )
    from cloudtwin.nodes.twin import Twin

__all__ = [
    "Leftover",
    "MachineSpec",
    "MachineStatus",
    "Power",
    "Role",
    "RunningTwin",
    "Taint",
    "Twin",
    "TwinStatus",
    "leftovers",
    "twins",
]

_MODULES = {"Twin": "twin", "leftovers": "doctor", "twins": "doctor"}


def __getattr__(name: str) -> object:
    """Load a public name on first use.

    A machine has up to two long-running processes that import modules of this package. Importing `Twin` and its
    dependencies there would cost forty megabytes per machine.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'model')}"), name)
