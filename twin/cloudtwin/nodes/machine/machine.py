"""One machine, as controlled from the host: boot, halt, freeze, disconnect, remove."""

import contextlib
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.nodes import node_objects, options
from cloudtwin.nodes.control_plane import certificates, components, pki
from cloudtwin.nodes.kubelet import csi_drivers
from cloudtwin.nodes.layout import Layout, MachineLayout
from cloudtwin.nodes.linux import memory, processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.linux.processes import Process
from cloudtwin.nodes.machine import configuration, image_copies
from cloudtwin.nodes.machine.configuration import Host
from cloudtwin.nodes.model import MachineStatus, Power
from cloudtwin.nodes.network import links
from cloudtwin.nodes.records import MachineRecord

BOOT_SECONDS = 90.0  # limit on a busy host
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))


@dataclass(frozen=True)
class Machine:
    """A machine that belongs to a twin."""

    layout: Layout
    cgroups: CgroupHierarchies
    record: MachineRecord

    @property
    def name(self) -> str:
        """Its name and its Node's."""
        return self.record.spec.name

    @property
    def folder(self) -> MachineLayout:
        """Its paths."""
        return self.layout.machine(self.name)

    @property
    def process(self) -> Process | None:
        """Its first process, if it runs."""
        process = processes.load(self.folder.process)
        return process if process and process.alive else None

    @property
    def power(self) -> Power:
        """State of its processes."""
        if self.process is None:
            return Power.GONE
        return Power.FROZEN if self.cgroups.is_frozen(self._cgroup) else Power.RUNNING

    @property
    def connected(self) -> bool:
        """True if its network link exists and is up."""
        return bool((pid := self._switch_pid) and links.is_up(pid, self.record.address))

    def status(self, node: dict[str, object] | None) -> MachineStatus:
        """Return its state; `node` is its Node object, if there is one."""
        power = self.power
        return MachineStatus(
            spec=self.record.spec,
            power=power,
            connected=power is not Power.GONE and self.connected,
            ip=str(self.record.address.ip),
            ready=None if node is None else node_objects.is_ready(node),
            schedulable=None if node is None else node_objects.is_schedulable(node),
        )

    def boot(self) -> None:
        """Start it with a new disk, as a cloud starts a machine from an image.

        Raises:
            TwinError: the machine did not start.
        """
        self.halt()
        self._prepare()
        self.cgroups.create(self._cgroup)
        command = [
            sys.executable,
            "-m",
            "cloudtwin.nodes.machine.boot",
            str(self.layout.state),
            self.name,
        ]
        if not _run(command, self.folder.log) or self.process is None:
            log = self.folder.log.read_text(errors="replace").strip()
            raise TwinError(
                f"The machine {self.name!r} did not start:\n{log}",
                f"Its log is {self.folder.log}. Run `up` again to boot it.",
            )

    def halt(self) -> None:
        """Stop it without notice; its link is removed first, so that none of its last packets are delivered."""
        if switch_pid := self._switch_pid:
            links.disconnect(switch_pid, self.record.address)
        if process := self.process:
            process.kill()  # the kernel then ends all processes in its PID namespace
        self.cgroups.kill(self._cgroup)

    def remove(self) -> None:
        """Stop it and remove its folder."""
        self.halt()
        # Rename first: a process that waits for the lock may create that file again while the folder is emptied.
        renamed_folder = self.layout.state / f"gone-{self.name}-{secrets.token_hex(4)}"
        self.folder.folder.rename(renamed_folder)
        shutil.rmtree(renamed_folder)

    def freeze(self, *, frozen: bool) -> None:
        """Freeze or thaw all of its processes.

        Raises:
            TwinError: the kernel did not finish in time.
        """
        if not self.cgroups.freeze(self._cgroup, frozen=frozen):
            verb = "freeze" if frozen else "thaw"
            raise TwinError(f"The machine {self.name!r} did not {verb}.", "Try again.")

    def connect(self, *, connected: bool) -> None:
        """Set its network link up or down; create a missing link.

        Raises:
            TwinError: the twin's network does not exist.
        """
        if (switch_pid := self._switch_pid) is None:
            raise TwinError("The twin's network does not exist.", "`up` repairs it.")
        if connected and links.is_up(switch_pid, self.record.address) is None:
            if process := self.process:
                links.connect(switch_pid, process.pid, self.record.address)
            return
        links.set_state(switch_pid, self.record.address, up=connected)

    @property
    def _cgroup(self) -> str:
        return self.layout.machine_cgroup(self.name)

    @property
    def _switch_pid(self) -> int | None:
        holder = components.process_in_network(self.layout)
        return holder.pid if holder else None

    def _prepare(self) -> None:
        folder = self.folder
        folder.process.unlink(missing_ok=True)
        for previous in (folder.disk, folder.config):
            if previous.exists():
                shutil.rmtree(previous)
        self.record.save(folder.record)
        shared_mount = options.load(self.layout).shared_mount
        contents = configuration.files_of(
            self.record.spec, self.record.address, this_host(), shared_mount
        )
        for name, content in contents.items():
            is_program = name.startswith(configuration.PROVIDER_FOLDER)
            files.write(folder.config / name, content, 0o755 if is_program else files.PUBLIC)
        self._write_credentials(folder.config)
        if self.record.spec.cloud:
            (folder.config / configuration.ACCOUNT.name).mkdir()
            self.layout.cloud.mkdir(exist_ok=True)
        (folder.disk / "lib").mkdir(parents=True)
        with contextlib.suppress(FileExistsError):
            (folder.disk / "run").symlink_to("/run")
        image_copies.make_root(
            self.layout.images / self.record.images, folder.disk / "lib" / "containerd"
        )

    def _write_credentials(self, config: Path) -> None:
        ca = certificates.load(self.layout, "ca")
        pair = pki.issue(
            ca,
            f"system:node:{self.name}",
            "system:nodes",
            names=[self.name],
            addresses=[self.record.address.ip],
        )
        pair.save(config, "kubelet")
        files.write(config / "ca.crt", ca.certificate)
        certificates.write_kubeconfig(self.layout, config / "kubelet.kubeconfig", pair)
        if self.record.spec.cloud:
            pki.issue(ca, f"{csi_drivers.USER}:{self.name}", csi_drivers.GROUP).save(
                config, "agent"
            )
        proxy = certificates.load(self.layout, "kube-proxy")
        certificates.write_kubeconfig(self.layout, config / "kube-proxy.kubeconfig", proxy)


def this_host() -> Host:
    """Return the properties of this host that its machines need.

    Raises:
        TwinError: CNI plugins are missing.
    """
    folder = next((folder for folder in CNI_FOLDERS if (folder / "bridge").exists()), None)
    if folder is None:
        raise TwinError(
            f"No CNI plugins in {', '.join(map(str, CNI_FOLDERS))}.",
            "Install Debian's containernetworking-plugins.",
        )
    return Host(memory.physical_bytes(), memory.usable_bytes(), folder)


def _run(command: list[str], log: Path) -> bool:
    """Run a program with its output in a log; return True if it succeeded in time."""
    with log.open("wb") as output:
        try:
            result = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=processes.ENVIRONMENT,
                cwd="/",
                start_new_session=True,
                timeout=BOOT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            output.write(f"not done after {BOOT_SECONDS:.0f} s\n".encode())
            return False
    return result.returncode == 0
