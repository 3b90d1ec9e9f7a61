"""What the twin's machines are, and what is said of them."""

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a machine is for."""

    SYSTEM = "system"
    GPU = "gpu"


@dataclass(frozen=True)
class MachineSpec:
    """A machine that is wanted.

    Attributes:
        name: the Node's name too.
        role: decides labels, taints and memory.
        gpus: fake `nvidia.com/gpu` on a GPU machine; meaningless on others.
    """

    name: str
    role: Role
    gpus: int = 1


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
