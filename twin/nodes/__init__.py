"""Real Kubernetes nodes in namespaces of one Linux machine, and all that can happen to them."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from twin.nodes.doctor import leftovers
    from twin.nodes.model import (
        Leftover,
        MachineSpec,
        MachineStatus,
        Power,
        Role,
        Taint,
        TwinStatus,
    )
    from twin.nodes.twin import Twin

__all__ = [
    "Leftover",
    "MachineSpec",
    "MachineStatus",
    "Power",
    "Role",
    "Taint",
    "Twin",
    "TwinStatus",
    "leftovers",
]

_HOMES = {"Twin": "twin", "leftovers": "doctor"}


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for.

    Every machine has two processes that import modules of this package and live as long as it does. They
    would carry all that `Twin` needs, forty megabytes a machine.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'model')}"), name)
