"""Real Kubernetes nodes in namespaces of one Linux machine, and all that can happen to them."""

from twin.nodes.model import Leftover, MachineSpec, MachineStatus, Power, Role, TwinStatus
from twin.nodes.twin import Twin

__all__ = [
    "Leftover",
    "MachineSpec",
    "MachineStatus",
    "Power",
    "Role",
    "Twin",
    "TwinStatus",
]
