"""The pools of machines that a cloud account has been asked for, kept where every process of the twin finds them.

A provider writes a pool when a node group is created or changed; the daemon reads it and makes machines; the
autoscaler changes how many are wanted. One file holds them all, changed under a lock: a provider that sets labels
and an autoscaler that sets a size at the same moment must both be heard.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from twin.nodes import files
from twin.nodes.model import CLOUDS, Cloud, MachineSpec, Role, Taint

Capacity = Literal["spot", "on-demand"]
AKS_SPOT = Taint("kubernetes.azure.com/scalesetpriority", "spot")
CAPACITIES: tuple[Capacity, ...] = ("spot", "on-demand")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Machines of one kind that a cloud keeps at a wanted number.

    Attributes:
        name: of the node group or agent pool; unique in a twin, and the first part of its machines' names.
        cloud: whose it is.
        cluster: the cluster's name.
        role: decides how much memory a machine offers.
        instance_types: in the order in which they are tried.
        zone: such as `us-east-1a` or `eastus-1`; empty where the region has none.
        region: such as `us-east-1` or `eastus`.
        labels: declared by who made the pool; the cloud's own are added.
        taints: declared likewise; that of AKS for spot machines is added.
        gpus: of each machine.
        minimum: the fewest machines an autoscaler may leave.
        desired: how many are wanted now.
        maximum: the most an autoscaler may want.
        capacity: whether the cloud may take machines back.
        startup_taints: there from a machine's first moment until something removes them.
        autoscaled: whether the cloud's own autoscaler may change `desired`; where an autoscaler runs as a pod in
            the cluster, its pod decides that.
        idle_seconds: how long a machine must be without work before the autoscaler takes it away.
    """

    name: str
    cloud: Cloud
    cluster: str
    role: Role
    instance_types: tuple[str, ...]
    zone: str = ""
    region: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    gpus: int = 0
    minimum: int = 0
    desired: int = 0
    maximum: int = 0
    capacity: Capacity = "on-demand"
    startup_taints: tuple[Taint, ...] = ()
    autoscaled: bool = False
    idle_seconds: float = 600.0

    def __post_init__(self) -> None:
        """Refuse what no cloud would have let pass: a fault of the provider that made it."""
        if not 0 <= self.minimum <= self.maximum:
            raise ValueError(f"pool {self.name}: {self.minimum=} and {self.maximum=} contradict")
        if not self.instance_types:
            raise ValueError(f"pool {self.name}: it has no instance type")

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> "Pool":
        """Return the pool that JSON stands for.

        Raises:
            KeyError, TypeError, ValueError: it stands for none.
        """
        clouds: dict[str, Cloud] = {cloud: cloud for cloud in CLOUDS}
        capacities: dict[str, Capacity] = {capacity: capacity for capacity in CAPACITIES}
        return cls(
            **{
                **stored,
                "cloud": clouds[stored["cloud"]],
                "role": Role(stored["role"]),
                "capacity": capacities[stored["capacity"]],
                "instance_types": tuple(stored["instance_types"]),
                "taints": tuple(Taint.parse(taint) for taint in stored["taints"]),
                "startup_taints": tuple(Taint.parse(taint) for taint in stored["startup_taints"]),
            }
        )

    @property
    def all_taints(self) -> tuple[Taint, ...]:
        """What keeps pods off a new machine: what was declared, and what AKS puts on spot machines unasked."""
        imposed = (AKS_SPOT,) if self.cloud == "azure" and self.capacity == "spot" else ()
        return tuple(dict.fromkeys((*self.taints, *imposed, *self.startup_taints)))

    def machine(self, name: str, instance_type: str | None = None) -> MachineSpec:
        """Return the machine of this pool that has a name; of the pool's first type where none is said."""
        chosen = instance_type or self.instance_types[0]
        return MachineSpec(
            name=name,
            role=self.role,
            gpus=self.gpus,
            labels={**cloud_labels(self), **self.labels},
            taints=self.all_taints,
            instance_type=chosen,
            zone=self.zone,
            region=self.region,
            cloud=self.cloud,
            spot=self.capacity == "spot",
            group=self.name,
        )


def cloud_labels(pool: Pool) -> dict[str, str]:
    """Return the labels that EKS or AKS puts on a node of a pool, without being asked.

    Source: the user guides of both, and nodes as they are seen there; AKS says of a spot node alone that it is
    one, EKS says of each which kind it is.
    """
    if pool.cloud == "azure":
        labels = {
            "agentpool": pool.name,
            "kubernetes.azure.com/agentpool": pool.name,
            "kubernetes.azure.com/cluster": f"MC_{pool.cluster}",
            "kubernetes.azure.com/mode": "system" if pool.role is Role.SYSTEM else "user",
        }
        accelerator = {"accelerator": "nvidia", "kubernetes.azure.com/accelerator": "nvidia"}
        spot = {"kubernetes.azure.com/scalesetpriority": "spot"}
        return (
            labels | (accelerator if pool.gpus else {}) | (spot if pool.capacity == "spot" else {})
        )
    return {
        "eks.amazonaws.com/nodegroup": pool.name,
        "eks.amazonaws.com/capacityType": "SPOT" if pool.capacity == "spot" else "ON_DEMAND",
    }


@dataclass(frozen=True)
class PoolStore:
    """The pools of one twin.

    Attributes:
        state: the twin's folder.
    """

    state: Path

    @property
    def path(self) -> Path:
        """The file that holds them; its time of change tells that something is to be done."""
        return self.state / "cloud" / "pools.json"

    def all(self) -> tuple[Pool, ...]:
        """Return every pool, by name."""
        stored = files.read_json(self.path) or {}
        return tuple(Pool.parse(stored[name]) for name in sorted(stored))

    def get(self, name: str) -> Pool | None:
        """Return one pool as it is now, its wanted size included; None where there is none of this name."""
        return next((pool for pool in self.all() if pool.name == name), None)

    def put(self, pool: Pool) -> None:
        """Add a pool, or make the one of this name as given, its wanted size included."""
        self._change(lambda stored: stored.update({pool.name: asdict(pool)}))

    def resize(self, name: str, desired: int) -> None:
        """Want another number of machines, whatever else may have changed; a pool that is gone stays gone."""

        def change(stored: dict[str, Any]) -> None:
            if name in stored:
                stored[name] = asdict(replace(Pool.parse(stored[name]), desired=desired))

        self._change(change)

    def delete(self, name: str) -> None:
        """Forget a pool; the daemon takes its machines away."""
        self._change(lambda stored: stored.pop(name, None))

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Let nothing be decided while the block runs: for changes that belong together."""
        with _locked(self.path.with_name("deciding.lock")):
            yield

    def _change(self, change: Callable[[dict[str, Any]], object]) -> None:
        with _locked(self.path.with_suffix(".lock")):
            stored = files.read_json(self.path) or {}
            change(stored)
            files.write_json(self.path, stored)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # held for milliseconds: waiting is right
        yield
    finally:
        os.close(descriptor)
