"""Specifications and states of a twin and its machines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Cloud = Literal["", "aws", "azure"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
EFFECTS: tuple[Effect, ...] = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CLOUDS: tuple[Cloud, ...] = ("", "aws", "azure")
GPU_RESOURCE = "nvidia.com/gpu"


class Role(StrEnum):
    """Kind of a machine: it determines the memory, and whether there can be GPUs."""

    SYSTEM = "system"
    GPU = "gpu"


@dataclass(frozen=True)
class Taint:
    """A taint of a Node."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "Taint":
        """Return the taint that a JSON object describes, in the form of this class or of Kubernetes.

        Raises:
            KeyError, TypeError: the object does not describe a taint.
        """
        effects: dict[str, Effect] = {effect: effect for effect in EFFECTS}
        return cls(
            str(document["key"]), str(document.get("value") or ""), effects[document["effect"]]
        )


def pool_key(cluster: str, name: str) -> str:
    """Return the key of a pool in a twin: clusters may have pools of the same name."""
    return f"{cluster}/{name}"  # names of clusters and pools contain no slash


@dataclass(frozen=True)
class MachineSpec:
    """Specification of a machine.

    A cloud machine also has the labels that the cloud's controller sets on every Node, and a metadata service.

    Attributes:
        name: its name and its Node's.
        role: its kind, which determines its memory.
        gpus: number of simulated `nvidia.com/gpu` on a GPU machine; ignored on others.
        labels: labels of its Node, in addition to instance type, zone and region.
        taints: taints that its Node registers with.
        instance_type: type of the machine, such as `g5.xlarge`.
        zone: its zone, such as `us-east-1a` or `eastus-1`; empty if it has none.
        region: its region, such as `us-east-1`.
        cloud: the cloud whose metadata service it has; empty for none.
        spot: True if the cloud may reclaim it.
        group: name of the pool that it belongs to; empty for none.
        release: version of its software, as recorded by its pool; empty for none.
        resource_group: resource group of the nodes of its cluster; empty outside a pool of AKS.
        cluster: name of its pool's cluster; empty without a pool.
    """

    name: str
    role: Role
    gpus: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    instance_type: str = ""
    zone: str = ""
    region: str = ""
    cloud: Cloud = ""
    spot: bool = False
    group: str = ""
    release: str = ""
    resource_group: str = ""
    cluster: str = ""

    @property
    def pool(self) -> str:
        """The key of the pool that it belongs to; empty for none."""
        return pool_key(self.cluster, self.group) if self.group else ""

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "MachineSpec":
        """Return the spec that a JSON object describes; all fields but name, role and gpus may be missing.

        Raises:
            KeyError, TypeError, ValueError: the object does not describe a spec.
        """
        clouds: dict[str, Cloud] = {cloud: cloud for cloud in CLOUDS}
        return cls(
            name=str(document["name"]),
            role=Role(document["role"]),
            gpus=int(document["gpus"]),
            labels={
                str(key): str(value) for key, value in dict(document.get("labels", {})).items()
            },
            taints=tuple(Taint.parse(taint) for taint in document.get("taints", ())),
            instance_type=str(document.get("instance_type", "")),
            zone=str(document.get("zone", "")),
            region=str(document.get("region", "")),
            cloud=clouds[document.get("cloud", "")],
            spot=bool(document.get("spot", False)),
            group=str(document.get("group", "")),
            release=str(document.get("release", "")),
            resource_group=str(document.get("resource_group", "")),
            cluster=str(document.get("cluster", "")),
        )


class Power(StrEnum):
    """State of a machine's processes."""

    RUNNING = "running"
    FROZEN = "frozen"
    GONE = "gone"


@dataclass(frozen=True)
class MachineStatus:
    """State of a machine.

    Attributes:
        spec: its specification.
        power: state of its processes.
        connected: True if its network link is up.
        ip: its address.
        ready: True if its Node is Ready; None if there is no Node or no API server.
        schedulable: True if its Node accepts new pods; None as for `ready`.
    """

    spec: MachineSpec
    power: Power
    connected: bool
    ip: str
    ready: bool | None
    schedulable: bool | None


@dataclass(frozen=True)
class TwinStatus:
    """State of a twin.

    Attributes:
        name: its name.
        api_ready: True if its API server responds.
        components: component of the control plane -> whether it runs.
        machines: its machines in the order of their addresses.
    """

    name: str
    api_ready: bool
    components: dict[str, bool]
    machines: tuple[MachineStatus, ...]


@dataclass(frozen=True)
class Leftover:
    """A resource of this host that a stopped twin has left behind.

    Attributes:
        kind: state, process, cgroup or mount.
        name: its id, name or path.
        how_to_remove: the command that removes it.
    """

    kind: str
    name: str
    how_to_remove: str

    def as_value(self) -> dict[str, str]:
        """Return the leftover as plain values for JSON or YAML."""
        return {"kind": self.kind, "what": self.name, "how_to_remove": self.how_to_remove}


@dataclass(frozen=True)
class RunningTwin:
    """A twin that runs on this host, started by any user or test.

    Attributes:
        state: its folder.
        age_seconds: seconds since its control plane started.
        machines: names of its machines that are not gone.
        how_to_remove: the command that takes it down.
    """

    state: str
    age_seconds: int
    machines: tuple[str, ...]
    how_to_remove: str
