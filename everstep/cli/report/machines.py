"""The GPU machines that a run has had: type, pool, capacity type, zone and start time of each.

Only a node shows how and when its machine was bought, and the node is deleted with the machine. Commands that read
a cluster therefore record its nodes in a file of the stack's state.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from everstep.catalog.names import (
    CAPACITY_LABEL,
    GPU_POOL,
    GPU_POOL_LABEL,
    ON_DEMAND,
    ZONE_LABEL,
)
from everstep.cli.kubernetes_client import NodeView
from everstep.files import write_atomically

MACHINE_TYPE_LABEL = "node.kubernetes.io/instance-type"  # set by both clouds


@dataclass(frozen=True)
class MachineKind:
    """Type, pool and capacity type of a machine.

    Attributes:
        machine_type: instance type or VM size.
        pool: name of its pool in `cluster.gpuPools`; empty for a pool of `cluster.gpuPool`.
        on_demand: whether it was bought on demand.
    """

    machine_type: str
    pool: str
    on_demand: bool


@dataclass(frozen=True)
class ReportedMachine:
    """A machine of the run.

    Attributes:
        kind: type, pool and capacity type.
        zone: its zone; empty if unknown.
        since: Unix time at which its node joined the cluster; None if unknown.
    """

    kind: MachineKind
    zone: str = ""
    since: float | None = None


def machine_of(node: NodeView) -> ReportedMachine | None:
    """Return the machine of a node; None for a node without GPUs."""
    if node.pool != GPU_POOL:
        return None
    kind = MachineKind(
        machine_type=node.labels.get(MACHINE_TYPE_LABEL, ""),
        pool=node.labels.get(GPU_POOL_LABEL, ""),
        on_demand=node.labels.get(CAPACITY_LABEL) == ON_DEMAND,
    )
    return ReportedMachine(kind, node.labels.get(ZONE_LABEL, ""), node.created)


@dataclass
class MachineLog:
    """The machines that commands have observed, by the name of their node.

    Attributes:
        path: file of the log; created with the first machine.
        observed: machines by the name of their node.
    """

    path: Path
    observed: dict[str, ReportedMachine] = field(init=False)

    def __post_init__(self) -> None:
        self.observed = _read(self.path)

    def add(self, nodes: Iterable[NodeView]) -> None:
        """Record the machines of nodes; if a name is used again, keep only its newest machine."""
        machines = {node.name: machine for node in nodes if (machine := machine_of(node))}
        if machines.items() <= self.observed.items():
            return
        self.observed |= machines
        content = {name: asdict(machine) for name, machine in self.observed.items()}
        write_atomically(self.path, json.dumps(content))


def _read(path: Path) -> dict[str, ReportedMachine]:
    """Return the machines of a log; empty if it is missing or damaged, so that all are billed at the highest price."""
    try:
        content = json.loads(path.read_text())
        return {name: _parse(machine) for name, machine in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _parse(machine: dict[str, Any]) -> ReportedMachine:
    if "kind" not in machine:  # written before zone and time were recorded
        return ReportedMachine(MachineKind(**machine))
    return ReportedMachine(**machine | {"kind": MachineKind(**machine["kind"])})
