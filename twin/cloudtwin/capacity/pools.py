"""The pools of machines in a cloud account, in a file that all processes of the twin share.

A provider writes a pool when a node group is created or updated, the daemon reads it and starts
machines, and the autoscaler changes its desired size. The file is changed under a lock, so that
simultaneous changes of labels and size are both kept.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cloudtwin import files
from cloudtwin.accounts import cluster_label
from cloudtwin.nodes.model import CLOUDS, Cloud, MachineSpec, Role, Taint, pool_key

Capacity = Literal["spot", "on-demand"]
AKS_SPOT = Taint("kubernetes.azure.com/scalesetpriority", "spot")
CAPACITIES: tuple[Capacity, ...] = ("spot", "on-demand")


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Machines of one kind whose number a cloud keeps at a desired size.

    Attributes:
        name: name of the node group or agent pool; unique in its cluster. Its machines' names derive from it.
        cloud: its cloud.
        cluster: name of its cluster.
        role: role of its machines, which determines the memory that they offer.
        instance_types: instance types in order of preference.
        zone: its zone, such as `us-east-1a` or `eastus-1`; empty if it has none.
        region: its region, such as `us-east-1` or `eastus`.
        labels: declared labels, without the cloud's own.
        taints: declared taints, without AKS's taint for spot machines.
        gpus: GPUs per machine.
        min_size: lower bound for the autoscaler.
        desired_size: number of machines that the cloud keeps.
        max_size: upper bound for the autoscaler.
        capacity: whether the machines are spot or on demand.
        startup_taints: taints of a new machine until an agent removes them.
        autoscaled: True if the cloud's own autoscaler may change `desired_size`; not used for an
            autoscaler that runs as a pod.
        idle_seconds: idle time after which the autoscaler removes a machine.
        release: version of its machines' software. Machines of another release are replaced.
        surge: machines that the pool may have above its desired size while others are replaced.
        max_price: USD per hour above which no spot machine starts or stays; None for any price.
        resource_group: resource group of its machines; empty for a cloud other than Azure.
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
    min_size: int = 0
    desired_size: int = 0
    max_size: int = 0
    capacity: Capacity = "on-demand"
    startup_taints: tuple[Taint, ...] = ()
    autoscaled: bool = False
    idle_seconds: float = 600.0
    release: str = ""
    surge: int = 0
    max_price: float | None = None
    resource_group: str = ""

    def __post_init__(self) -> None:
        """Raise ValueError for a pool that no cloud accepts: a bug of the provider."""
        if not 0 <= self.min_size <= self.max_size:
            raise ValueError(
                f"pool {self.name}: min_size={self.min_size} must be between 0 and "
                f"max_size={self.max_size}"
            )
        if not self.instance_types:
            raise ValueError(f"pool {self.name} has no instance type")

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Pool":
        """Return the pool of a JSON object.

        Raises:
            KeyError, TypeError, ValueError: the object is not a pool.
        """
        clouds: dict[str, Cloud] = {cloud: cloud for cloud in CLOUDS}
        capacities: dict[str, Capacity] = {capacity: capacity for capacity in CAPACITIES}
        return cls(
            **{
                **document,
                "cloud": clouds[document["cloud"]],
                "role": Role(document["role"]),
                "capacity": capacities[document["capacity"]],
                "instance_types": tuple(document["instance_types"]),
                "taints": tuple(Taint.parse(taint) for taint in document["taints"]),
                "startup_taints": tuple(Taint.parse(taint) for taint in document["startup_taints"]),
            }
        )

    @property
    def key(self) -> str:
        """Its unique key in the twin, from its cluster and its name."""
        return pool_key(self.cluster, self.name)

    @property
    def all_taints(self) -> tuple[Taint, ...]:
        """The taints of a new machine: the declared taints, AKS's for spot machines, and the startup taints."""
        spot_taints = (AKS_SPOT,) if self.cloud == "azure" and self.capacity == "spot" else ()
        return tuple(dict.fromkeys((*self.taints, *spot_taints, *self.startup_taints)))

    def machine(self, name: str, instance_type: str | None = None) -> MachineSpec:
        """Return the spec of a machine of this pool, by default of its first instance type."""
        selected_type = instance_type or self.instance_types[0]
        return MachineSpec(
            name=name,
            role=self.role,
            gpus=self.gpus,
            labels={**cloud_labels(self), **self.labels},
            taints=self.all_taints,
            instance_type=selected_type,
            zone=self.zone,
            region=self.region,
            cloud=self.cloud,
            spot=self.capacity == "spot",
            group=self.name,
            release=self.release,
            resource_group=self.resource_group,
            cluster=self.cluster,
        )


def cloud_labels(pool: Pool) -> dict[str, str]:
    """Return the labels that EKS or AKS adds to a node of a pool.

    Source: the user guides of EKS and AKS, and nodes observed there. AKS labels only spot nodes with their
    capacity, EKS all nodes.
    """
    if pool.cloud == "azure":
        labels = {
            "agentpool": pool.name,
            "kubernetes.azure.com/agentpool": pool.name,
            "kubernetes.azure.com/cluster": cluster_label(pool.resource_group),
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


def display_names(pools: Collection[Pool]) -> dict[str, str]:
    """Return the names of pools for users, by key: with the cluster if several pools have the name."""
    counts = Counter(pool.name for pool in pools)
    return {pool.key: pool.name if counts[pool.name] == 1 else pool.key for pool in pools}


@dataclass(frozen=True)
class PoolStore:
    """The pools of one twin, by `Pool.key`.

    Attributes:
        state: the twin's folder.
    """

    state: Path

    @property
    def path(self) -> Path:
        """The file of the pools."""
        return self.state / "cloud" / "pools.json"

    def all(self) -> tuple[Pool, ...]:
        """Return every pool, by cluster and name."""
        document = files.read_json(self.path) or {}
        return tuple(Pool.parse(document[key]) for key in sorted(document))

    def get(self, key: str) -> Pool | None:
        """Return a pool with its current desired size, or None."""
        return next((pool for pool in self.all() if pool.key == key), None)

    def put(self, pool: Pool) -> None:
        """Add a pool, or replace the pool with the same cluster and name."""
        files.change_json(self.path, lambda document: document.update({pool.key: asdict(pool)}))

    def resize(self, key: str, desired_size: int) -> None:
        """Change a pool's desired size and nothing else. A deleted pool stays deleted."""

        def change(document: dict[str, Any]) -> None:
            if key in document:
                document[key] = asdict(
                    replace(Pool.parse(document[key]), desired_size=desired_size)
                )

        files.change_json(self.path, change)

    def delete(self, key: str) -> None:
        """Delete a pool. The daemon removes its machines."""
        files.change_json(self.path, lambda document: document.pop(key, None))

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Prevent decisions of the daemon while the block runs."""
        with files.locked(self.path.with_name("deciding.lock")):
            yield
