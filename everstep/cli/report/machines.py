"""The GPU machines that a run has had: type, pool and capacity type of each.

Only the labels of a node say how its machine was bought, and they end with the node. Commands that look at a
cluster therefore record its nodes in a file of the stack's state.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from everstep.catalog.names import CAPACITY_LABEL, GPU_POOL, GPU_POOL_LABEL, ON_DEMAND
from everstep.cli.kubernetes_client import NodeView
from everstep.files import write_atomically

MACHINE_TYPE_LABEL = "node.kubernetes.io/instance-type"  # of Kubernetes, set by both clouds


@dataclass(frozen=True)
class MachineKind:
    """How a machine was bought.

    Attributes:
        machine_type: instance type or VM size.
        pool: name of its pool in `cluster.gpuPools`; empty for a pool of `cluster.gpuPool`.
        on_demand: whether it was bought on demand.
    """

    machine_type: str
    pool: str
    on_demand: bool


def kind_of(node: NodeView) -> MachineKind | None:
    """Return how the machine of a node was bought; None for a node without GPUs."""
    if node.pool != GPU_POOL:
        return None
    return MachineKind(
        machine_type=node.labels.get(MACHINE_TYPE_LABEL, ""),
        pool=node.labels.get(GPU_POOL_LABEL, ""),
        on_demand=node.labels.get(CAPACITY_LABEL) == ON_DEMAND,
    )


@dataclass
class MachineLog:
    """The machines that commands have seen, by the name of their node.

    Attributes:
        path: file of the log; created with the first machine.
        seen: machines so far.
    """

    path: Path
    seen: dict[str, MachineKind] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = _read(self.path)

    def add(self, nodes: Iterable[NodeView]) -> None:
        """Record the machines of nodes; a name that is used again has its newest machine."""
        kinds = {node.name: kind for node in nodes if (kind := kind_of(node))}
        if kinds.items() <= self.seen.items():
            return
        self.seen |= kinds
        content = {name: asdict(kind) for name, kind in self.seen.items()}
        write_atomically(self.path, json.dumps(content))


def _read(path: Path) -> dict[str, MachineKind]:
    """Return the machines of a log; none if it is missing or damaged: their price is then the highest."""
    try:
        content = json.loads(path.read_text())
        return {name: MachineKind(**kind) for name, kind in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
