"""Paths in the folder of a twin."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

# Names of files that a twin and a machine exchange: in the account, in the configuration, and on the disk.
VOLUMES, DRIVERS = "volumes.json", "drivers.json"
NOTICE = "notice.json"
ACKNOWLEDGEMENT = "lib/cloudtwin/acknowledged.json"


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
        """A name that is unique on this host, even among twins of the same name in other state roots."""
        digest = hashlib.sha256(str(self.state).encode()).hexdigest()
        return f"cloudtwin-{self.name}-{digest[:8]}"

    @property
    def control_plane_cgroup(self) -> str:
        """The cgroup of the control plane's processes."""
        return f"{self.identity}/{self.CONTROL_PLANE}"

    def machine_cgroup(self, name: str) -> str:
        """Return the cgroup of one machine."""
        return f"{self.identity}/machine-{name}"

    @property
    def capacity_cgroup(self) -> str:
        """The cgroup of the capacity daemon."""
        return f"{self.identity}/capacity"

    @property
    def settings(self) -> Path:
        """Settings that survive a repair, such as the port."""
        return self.state / "twin.json"

    @property
    def options(self) -> Path:
        """Options that the caller chose."""
        return self.state / "options.json"

    @property
    def lock(self) -> Path:
        """Lock file of commands that change the twin."""
        return self.state / "lock"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for use on the host."""
        return self.state / "kubeconfig"

    @property
    def events(self) -> Path:
        """Event log, with one JSON line for each operation on a machine."""
        return self.state / "events.jsonl"

    @property
    def shared(self) -> Path:
        """The folder that all machines mount."""
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
        """The folder with one folder per machine."""
        return self.state / "machines"

    @property
    def images(self) -> Path:
        """The twin's own copies of image stores, by cache key."""
        return self.state / "images"

    @property
    def cloud(self) -> Path:
        """Contents of the cloud account; mounted read-only in cloud machines."""
        return self.state / "cloud"

    @property
    def volumes(self) -> Path:
        """File systems of the account, and the identities that may mount them."""
        return self.cloud / VOLUMES

    @property
    def drivers(self) -> Path:
        """Storage drivers of the cluster."""
        return self.cloud / DRIVERS

    @property
    def registry(self) -> Path:
        """Images of the registry, and the rules by which it serves them."""
        return self.state / "registry"

    @property
    def aliases(self) -> Path:
        """Local images, by the published images that they replace."""
        return self.state / "aliases.json"

    @property
    def addons_lock(self) -> Path:
        """Lock file, locked while the cluster's add-ons are applied."""
        return self.state / "addons.lock"

    @property
    def slots_lock(self) -> Path:
        """Lock file, locked while new machines get their addresses."""
        return self.state / "slots.lock"

    def process(self, component: str) -> Path:
        """Return the process record of a component of the control plane."""
        return self.control_plane / f"{component}.json"

    def log(self, component: str) -> Path:
        """Return the log of a component in the control plane."""
        return self.control_plane / f"{component}.log"

    def machine(self, name: str) -> "MachineLayout":
        """Return the paths of one machine."""
        return MachineLayout(self.machines / name)


@dataclass(frozen=True)
class MachineLayout:
    """The folder of one machine."""

    folder: Path

    @property
    def record(self) -> Path:
        """The machine's record, with its spec and slot."""
        return self.folder / "machine.json"

    @property
    def process(self) -> Path:
        """Record of its first process; if that process is dead, the machine is gone."""
        return self.folder / "process.json"

    @property
    def config(self) -> Path:
        """Its configuration, mounted in it at /cloudtwin."""
        return self.folder / "config"

    @property
    def disk(self) -> Path:
        """Its disk, mounted in it at /var; new at each boot."""
        return self.folder / "disk"

    @property
    def log(self) -> Path:
        """Log of its first process."""
        return self.folder / "boot.log"

    @property
    def logs(self) -> Path:
        """Logs of its services, such as containerd and kubelet."""
        return self.disk / "log"

    @property
    def notice(self) -> Path:
        """The cloud's termination notice; in the configuration, so that a machine that boots again has none."""
        return self.config / NOTICE

    @property
    def acknowledgement(self) -> Path:
        """File that the machine writes when a program on it acknowledges the notice."""
        return self.disk / ACKNOWLEDGEMENT

    @property
    def lock(self) -> Path:
        """Lock file of commands that change this machine."""
        return self.folder / "lock"
