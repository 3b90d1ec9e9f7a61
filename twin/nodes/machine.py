"""One machine, seen from the host: prepared, booted, and what can befall it."""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from everstep.errors import EverstepError
from twin.nodes import (
    cluster,
    components,
    control_plane,
    drivers,
    files,
    machine_config,
    machine_images,
    network,
    pki,
    processes,
)
from twin.nodes.cgroups import Tree
from twin.nodes.layout import Layout, MachineLayout
from twin.nodes.machine_config import Host
from twin.nodes.model import MachineStatus, Power
from twin.nodes.processes import Process
from twin.nodes.records import MachineRecord

BOOT_SECONDS = 30.0
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"), Path("/usr/libexec/cni"))


@dataclass(frozen=True)
class Machine:
    """A machine that belongs to a twin."""

    layout: Layout
    tree: Tree
    record: MachineRecord

    @property
    def name(self) -> str:
        """Its name and its Node's."""
        return self.record.spec.name

    @property
    def folder(self) -> MachineLayout:
        """Where its things are."""
        return self.layout.machine(self.name)

    @property
    def process(self) -> Process | None:
        """Its first process, if it lives."""
        process = processes.load(self.folder.process)
        return process if process and process.alive else None

    @property
    def power(self) -> Power:
        """What became of it."""
        if self.process is None:
            return Power.GONE
        return Power.FROZEN if self.tree.is_frozen(self._cgroup) else Power.RUNNING

    @property
    def connected(self) -> bool:
        """Whether its cable is there and carries frames."""
        return bool((switch := self._switch) and network.link_is_up(switch, self.record.address))

    def status(self, node: dict[str, object] | None) -> MachineStatus:
        """Say how it is; `node` is Kubernetes's view of it, where there is one."""
        power = self.power
        return MachineStatus(
            spec=self.record.spec,
            power=power,
            connected=power is not Power.GONE and self.connected,
            ip=str(self.record.address.ip),
            ready=None if node is None else cluster.is_ready(node),
            schedulable=None if node is None else cluster.is_schedulable(node),
        )

    def boot(self) -> None:
        """Start it with a new disk, as the cloud starts a machine from an image.

        Raises:
            EverstepError: it did not come to life.
        """
        self.halt()
        self._prepare()
        self.tree.create(self._cgroup)
        command = [sys.executable, "-m", "twin.nodes.boot", str(self.layout.state), self.name]
        if not _run(command, self.folder.log) or self.process is None:
            said = self.folder.log.read_text(errors="replace").strip()
            raise EverstepError(
                f"The machine {self.name!r} did not start:\n{said}",
                f"Its log is {self.folder.log}. Running `up` again boots it anew.",
            )

    def halt(self) -> None:
        """Take it away without a word: its cable first, so that nothing it does on dying is heard."""
        if switch := self._switch:
            network.unplug(switch, self.record.address)
        if process := self.process:
            process.kill()  # and with it all that runs in its PID namespace
        self.tree.kill(self._cgroup)

    def remove(self) -> None:
        """Take it away and forget it."""
        self.halt()
        # Aside first: whoever waits for its lock may open that file anew while the folder is emptied.
        aside = self.layout.state / f"gone-{self.name}-{secrets.token_hex(4)}"
        self.folder.folder.rename(aside)
        shutil.rmtree(aside)

    def freeze(self, *, frozen: bool) -> None:
        """Stop every process of it where it is, or continue them.

        Raises:
            EverstepError: the kernel did not do so in time.
        """
        if not self.tree.freeze(self._cgroup, frozen=frozen):
            wanted = "stop" if frozen else "continue"
            raise EverstepError(f"The machine {self.name!r} did not {wanted}.", "Try again.")

    def connect(self, *, connected: bool) -> None:
        """Let its cable carry frames or not; a missing cable is laid anew."""
        if (switch := self._switch) is None:
            raise EverstepError("The twin's network is gone.", "`up` repairs it.")
        if connected and network.link_is_up(switch, self.record.address) is None:
            if process := self.process:
                network.plug(switch, process.pid, self.record.address)
            return
        network.set_link(switch, self.record.address, up=connected)

    @property
    def _cgroup(self) -> str:
        return self.layout.machine_cgroup(self.name)

    @property
    def _switch(self) -> int | None:
        holder = components.holder(self.layout)
        return holder.pid if holder else None

    def _prepare(self) -> None:
        folder = self.folder
        folder.process.unlink(missing_ok=True)
        for old in (folder.disk, folder.config):
            if old.exists():
                shutil.rmtree(old)
        self.record.save(folder.record)
        for name, content in machine_config.files_of(
            self.record.spec, self.record.address, this_host()
        ).items():
            files.write(folder.config / name, content)
        self._write_credentials(folder.config)
        if self.record.spec.cloud:
            (folder.config / machine_config.ACCOUNT.name).mkdir()
            self.layout.cloud.mkdir(exist_ok=True)
        (folder.disk / "lib").mkdir(parents=True)
        with contextlib.suppress(FileExistsError):
            (folder.disk / "run").symlink_to("/run")
        machine_images.lay_out(
            self.layout.images / self.record.images, folder.disk / "lib" / "containerd"
        )

    def _write_credentials(self, config: Path) -> None:
        authority = control_plane.load_pair(self.layout, "ca")
        pair = pki.issue(
            authority,
            f"system:node:{self.name}",
            "system:nodes",
            names=[self.name],
            addresses=[self.record.address.ip],
        )
        pair.save(config, "kubelet")
        files.write(config / "ca.crt", authority.certificate)
        control_plane.write_kubeconfig(self.layout, config / "kubelet.kubeconfig", pair)
        if self.record.spec.cloud:
            pki.issue(authority, f"{drivers.USER}:{self.name}", drivers.GROUP).save(config, "agent")
        proxy = control_plane.load_pair(self.layout, "kube-proxy")
        control_plane.write_kubeconfig(self.layout, config / "kube-proxy.kubeconfig", proxy)


def this_host() -> Host:
    """Return what of this host shows in its machines.

    Raises:
        EverstepError: it has no CNI plugins.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    folder = next((folder for folder in CNI_FOLDERS if (folder / "bridge").exists()), None)
    if folder is None:
        raise EverstepError(
            f"No CNI plugins in {', '.join(map(str, CNI_FOLDERS))}.",
            "Install Debian's containernetworking-plugins.",
        )
    return Host(memory, folder)


def _run(command: list[str], log: Path) -> bool:
    """Run a program whose words go to a log; return whether it did its work in time."""
    with log.open("wb") as output:
        try:
            ended = subprocess.run(
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
    return ended.returncode == 0
