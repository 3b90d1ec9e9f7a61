"""What the twin's machines are, and what is said of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Cloud = Literal["", "aws", "azure"]
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
EFFECTS: tuple[Effect, ...] = ("NoSchedule", "PreferNoSchedule", "NoExecute")
CLOUDS: tuple[Cloud, ...] = ("", "aws", "azure")


class Role(StrEnum):
    """What a machine is for."""

    SYSTEM = "system"
    GPU = "gpu"


@dataclass(frozen=True)
class Taint:
    """What keeps pods that do not tolerate it off a Node."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> "Taint":
        """Return the taint that JSON stands for, ours or Kubernetes's own.

        Raises:
            KeyError, ValueError: it stands for none.
        """
        effects: dict[str, Effect] = {effect: effect for effect in EFFECTS}
        return cls(str(stored["key"]), str(stored.get("value") or ""), effects[stored["effect"]])


@dataclass(frozen=True)
class MachineSpec:
    """A machine that is wanted.

    A machine of no cloud has the labels and taints of its role. One of a cloud has exactly those given, what a
    cloud's own controller says of every Node, and a metadata service.

    Attributes:
        name: the Node's name too.
        role: decides memory, and where there is no cloud labels and taints.
        gpus: fake `nvidia.com/gpu` on a GPU machine; meaningless on others.
        labels: of its Node, beside the instance type, zone and region.
        taints: of its Node from its first moment.
        instance_type: such as `g5.xlarge`.
        zone: such as `us-east-1a` or `eastus-1`; empty where the region has none.
        region: such as `us-east-1`.
        cloud: whose metadata service it has; empty for none.
        spot: whether the cloud may take it back.
        group: the pool it belongs to.
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

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> "MachineSpec":
        """Return the spec that JSON stands for; what an older record lacks is as if it were not asked for.

        Raises:
            KeyError, TypeError, ValueError: it stands for none.
        """
        clouds: dict[str, Cloud] = {cloud: cloud for cloud in CLOUDS}
        return cls(
            name=str(stored["name"]),
            role=Role(stored["role"]),
            gpus=int(stored["gpus"]),
            labels={str(key): str(value) for key, value in dict(stored.get("labels", {})).items()},
            taints=tuple(Taint.parse(taint) for taint in stored.get("taints", ())),
            instance_type=str(stored.get("instance_type", "")),
            zone=str(stored.get("zone", "")),
            region=str(stored.get("region", "")),
            cloud=clouds[stored.get("cloud", "")],
            spot=bool(stored.get("spot", False)),
            group=str(stored.get("group", "")),
        )


class Power(StrEnum):
    """What became of a machine."""

    RUNNING = "running"
    FROZEN = "frozen"
    GONE = "gone"


@dataclass(frozen=True)
class MachineStatus:
    """How a machine is.

    Attributes:
        spec: what was wanted.
        power: whether it runs.
        connected: whether its network cable carries anything.
        ip: its address.
        ready: whether Kubernetes calls its Node Ready; None where there is no Node or nobody to ask.
        schedulable: whether new pods may come; None as for `ready`.
    """

    spec: MachineSpec
    power: Power
    connected: bool
    ip: str
    ready: bool | None
    schedulable: bool | None


@dataclass(frozen=True)
class TwinStatus:
    """How a twin is.

    Attributes:
        name: which twin.
        api_ready: whether its API server answers.
        components: each part of the control plane, and whether it runs.
        machines: in the order of their addresses.
    """

    name: str
    api_ready: bool
    components: dict[str, bool]
    machines: tuple[MachineStatus, ...]

    @property
    def standing(self) -> bool:
        """Whether there is anything of it at all."""
        return bool(self.machines) or any(self.components.values())


@dataclass(frozen=True)
class Leftover:
    """Something a twin that no longer stands has left on this machine.

    Attributes:
        kind: state, process, cgroup or mount.
        what: which one.
        how_to_remove: a command.
    """

    kind: str
    what: str
    how_to_remove: str
