"""Where everything stands in the one folder of a twin."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class Layout:
    """The folder of one twin."""

    CONTROL_PLANE: ClassVar[str] = "control-plane"

    state: Path

    @property
    def name(self) -> str:
        """The twin's name."""
        return self.state.name

    @property
    def identity(self) -> str:
        """A name for it that no other twin on this host has, also where another state root holds its namesake."""
        digest = hashlib.sha256(str(self.state).encode()).hexdigest()
        return f"everstep-{self.name}-{digest[:8]}"

    @property
    def control_plane_cgroup(self) -> str:
        """The cgroup of everything that is not in a machine."""
        return f"{self.identity}/{self.CONTROL_PLANE}"

    def machine_cgroup(self, name: str) -> str:
        """Return the cgroup of one machine."""
        return f"{self.identity}/machine-{name}"

    @property
    def companion_cgroup(self) -> str:
        """The cgroup of what starts and ends machines by itself."""
        return f"{self.identity}/companion"

    @property
    def settings(self) -> Path:
        """What must survive a repair: the port, the slots."""
        return self.state / "twin.json"

    @property
    def lock(self) -> Path:
        """Held by who changes the twin."""
        return self.state / "lock"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for use on the host."""
        return self.state / "kubeconfig"

    @property
    def events(self) -> Path:
        """A line for every verb."""
        return self.state / "events.jsonl"

    @property
    def shared(self) -> Path:
        """What every machine mounts."""
        return self.state / "shared"

    @property
    def pki(self) -> Path:
        """Keys and certificates of the control plane."""
        return self.state / "pki"

    @property
    def control_plane(self) -> Path:
        """Data, logs and process records of the control plane."""
        return self.state / self.CONTROL_PLANE

    @property
    def machines(self) -> Path:
        """A folder for every machine."""
        return self.state / "machines"

    @property
    def images(self) -> Path:
        """The twin's own copies of image stores, by key."""
        return self.state / "images"

    @property
    def cloud(self) -> Path:
        """What a cloud's account holds; machines see it, read-only."""
        return self.state / "cloud"

    @property
    def volumes(self) -> Path:
        """Which file systems the account has, and who may mount them."""
        return self.cloud / "volumes.json"

    @property
    def drivers(self) -> Path:
        """Which storage drivers the cluster has."""
        return self.cloud / "drivers.json"

    @property
    def aliases(self) -> Path:
        """Which published images local ones answer for."""
        return self.state / "aliases.json"

    @property
    def addons_lock(self) -> Path:
        """Held while the cluster's add-ons are made."""
        return self.state / "addons.lock"

    @property
    def slots_lock(self) -> Path:
        """Held while new machines are given their addresses."""
        return self.state / "slots.lock"

    def process(self, component: str) -> Path:
        """Where the process of a part of the control plane is remembered."""
        return self.control_plane / f"{component}.json"

    def log(self, component: str) -> Path:
        """Where a part of the control plane logs to."""
        return self.control_plane / f"{component}.log"

    def machine(self, name: str) -> "MachineLayout":
        """Return where one machine's things are."""
        return MachineLayout(self.machines / name)


@dataclass(frozen=True)
class MachineLayout:
    """The folder of one machine."""

    folder: Path

    @property
    def record(self) -> Path:
        """What the machine is: its spec and slot."""
        return self.folder / "machine.json"

    @property
    def process(self) -> Path:
        """Its first process; where it is dead, the machine is gone."""
        return self.folder / "process.json"

    @property
    def config(self) -> Path:
        """What it boots with; it sees this folder as /everstep."""
        return self.folder / "config"

    @property
    def disk(self) -> Path:
        """What it sees as /var: new each time it boots."""
        return self.folder / "disk"

    @property
    def log(self) -> Path:
        """What its first process says."""
        return self.folder / "boot.log"

    @property
    def logs(self) -> Path:
        """What its services say: containerd, kubelet and the others."""
        return self.disk / "log"

    @property
    def notice(self) -> Path:
        """What the cloud has announced; in what the machine boots with, so that a new machine has none."""
        return self.config / "notice.json"

    @property
    def acknowledgement(self) -> Path:
        """Where the machine notes that its programs have agreed to go at once."""
        return self.disk / "lib" / "everstep" / "acknowledged.json"

    @property
    def lock(self) -> Path:
        """Held by who changes this machine."""
        return self.folder / "lock"
