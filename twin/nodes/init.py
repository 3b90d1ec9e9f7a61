"""The first process of a machine: furnishes it, starts its services, restarts those that end.

Where systemd would stand on a real machine. When it is killed the kernel ends everything in the machine.
"""

import os
import resource
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import twin
from twin.nodes import (
    image_aliases,
    machine_config,
    machine_images,
    network,
    processes,
    root_folder,
)
from twin.nodes.cgroups import Tree
from twin.nodes.layout import MachineLayout
from twin.nodes.machine_config import INSIDE
from twin.nodes.model import Role
from twin.nodes.records import MachineRecord

RESTART_SECONDS = 1.0
CONTAINERD_SECONDS = 30.0
LOGS = Path("/var/log")


@dataclass(frozen=True)
class Plan:
    """All that the first process must know."""

    record: MachineRecord
    machine: MachineLayout
    shared: Path
    images: Path
    tree: Tree
    tools: Mapping[str, str]
    aliases: Mapping[str, str]
    cloud: Path


@dataclass
class Services:
    """The programs that run for as long as the machine does."""

    commands: dict[str, Sequence[str]]
    running: dict[int, str] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start one; its words go to a log of its own."""
        with (LOGS / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                self.commands[name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=processes.ENVIRONMENT,
                start_new_session=True,
            )
        child.returncode = 0  # collected in `watch`, with the orphans
        self.running[child.pid] = name

    def watch(self) -> NoReturn:
        """Collect whatever ends in the machine and start services again, for ever."""
        while True:
            pid, status = os.waitpid(-1, 0)
            if name := self.running.pop(pid, None):
                print(f"{name} ended with {os.waitstatus_to_exitcode(status)}", flush=True)
                time.sleep(RESTART_SECONDS)
                self.start(name)


def main(plan: Plan) -> NoReturn:
    """Be the machine."""
    try:
        os.setsid()
        os.umask(0o022)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # pods inherit it
        furnish(plan)
        services = Services(commands(plan.record))
        services.start("containerd")
        # The kubelet would wait as well, but longer than containerd takes.
        processes.wait_until(machine_config.CONTAINERD_SOCKET.exists, CONTAINERD_SECONDS)
        name_images(plan.aliases)  # before a pod can ask for one
        for name in services.commands.keys() - {"containerd"}:
            services.start(name)
        services.watch()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def furnish(plan: Plan) -> None:
    """Give the machine its name, its files, its cgroups and its network settings."""
    socket.sethostname(plan.record.spec.name)
    code = Path(twin.__file__).parents[1]
    needed = [code, Path(sys.prefix), Path(sys.base_prefix), *map(Path, plan.tools.values())]
    containerd = Path("/var/lib/containerd")
    layers = {
        containerd / layer: plan.images / layer for layer in machine_images.layers(plan.images)
    }
    folders = root_folder.Folders(plan.machine.disk, plan.machine.config, plan.shared)
    account = {machine_config.ACCOUNT: plan.cloud} if plan.record.spec.cloud else {}
    root_folder.build(folders, needed, {**layers, **account})
    root_folder.mount_cgroups(plan.tree.version, plan.tree.controllers)
    root_folder.hide_sysctls()
    LOGS.mkdir(exist_ok=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    network.refuse_lost_packets()


def name_images(aliases: Mapping[str, str]) -> None:
    """Let local images answer for published ones; the machine lives without those that cannot."""
    naming = [
        subprocess.Popen(command, env=processes.ENVIRONMENT, stdout=subprocess.DEVNULL)
        for command in image_aliases.commands(aliases)
    ]
    for process in naming:
        process.wait()


def commands(record: MachineRecord) -> dict[str, Sequence[str]]:
    """Return the services of a machine and how each is started."""
    spec, config = record.spec, INSIDE
    services: dict[str, Sequence[str]] = {
        "containerd": ["containerd", f"--config={config / 'containerd.toml'}"],
        "kubelet": [
            record.tools["kubelet"],
            f"--config={config / 'kubelet.yaml'}",
            f"--kubeconfig={config / 'kubelet.kubeconfig'}",
            f"--hostname-override={spec.name}",
            f"--node-ip={record.address.ip}",
            "--node-labels=" + ",".join(f"{k}={v}" for k, v in machine_config.labels(spec).items()),
        ],
        "kube-proxy": [
            record.tools["kube-proxy"],
            f"--kubeconfig={config / 'kube-proxy.kubeconfig'}",
            f"--hostname-override={spec.name}",
            "--proxy-mode=iptables",
            "--cluster-cidr=10.244.0.0/16",
            # The connection table is the host's: leave its size and its time-outs alone.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ],
    }
    if spec.cloud:
        services["agent"] = [sys.executable, "-m", "twin.nodes.agent"]
    elif spec.role is Role.GPU and spec.gpus:
        plugin = [sys.executable, "-m", "twin.nodes.device_plugin", str(spec.gpus)]
        services["device-plugin"] = plugin
    return services
