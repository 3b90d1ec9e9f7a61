"""The first process of a machine: sets up its file system, starts its services and restarts services that end.

It replaces systemd. When it is killed, the kernel ends every process in the machine.
"""

import os
import resource
import shutil
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import cloudtwin
from cloudtwin.nodes.layout import MachineLayout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.machine import (
    configuration,
    image_aliases,
    image_copies,
    root_filesystem,
)
from cloudtwin.nodes.machine.configuration import CONFIG_FOLDER
from cloudtwin.nodes.model import Role
from cloudtwin.nodes.network import links
from cloudtwin.nodes.network.addressing import API_PORT, CONTROL_PLANE, PODS_NETWORK
from cloudtwin.nodes.records import MachineRecord

RESTART_SECONDS = 1.0
CONTAINERD_SECONDS = 90.0
LOGS = Path("/var/log")
KUBELET = "kubelet"
CLIENT_CERTIFICATES = Path("/var/lib/kubelet/pki")
ALIAS_FAILED = "ImageAliasFailed"
"""Reason of the event of a Node whose machine cannot use a local image in place of a published one."""


@dataclass(frozen=True)
class BootPlan:
    """Arguments of a machine's first process.

    Attributes:
        record: record of the machine.
        machine: paths of the machine on the host.
        shared: the folder that all machines share, on the host.
        shared_mount: mount point of that folder in the machine.
        images: the twin's copy of the image store.
        cgroups: cgroup hierarchies of the host.
        tools: paths of the machine's programs, by name.
        aliases: local image references by published ones.
        cloud: contents of the cloud account, on the host.
    """

    record: MachineRecord
    machine: MachineLayout
    shared: Path
    shared_mount: Path
    images: Path
    cgroups: CgroupHierarchies
    tools: Mapping[str, str]
    aliases: Mapping[str, str]
    cloud: Path


@dataclass
class Services:
    """The machine's long-running programs.

    Attributes:
        commands: command line of each service.
        name_by_pid: names of the running services, by process id.
    """

    commands: dict[str, Sequence[str]]
    name_by_pid: dict[int, str] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """Start a service with its own log."""
        if name == KUBELET:
            # A kubelet copies its first certificate into this folder before it requests its own. If it ends in
            # between, the next kubelet mistakes the copy for its own certificate and requests none for months.
            shutil.rmtree(CLIENT_CERTIFICATES, ignore_errors=True)
        with (LOGS / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(
                self.commands[name],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=processes.ENVIRONMENT,
                start_new_session=True,
            )
        child.returncode = 0  # reaped in `watch`, with the orphans
        self.name_by_pid[child.pid] = name

    def watch(self) -> NoReturn:
        """Reap processes of the machine and restart services, forever."""
        while True:
            pid, status = os.waitpid(-1, 0)
            if name := self.name_by_pid.pop(pid, None):
                print(f"{name} ended with {os.waitstatus_to_exitcode(status)}", flush=True)
                time.sleep(RESTART_SECONDS)
                self.start(name)


def main(plan: BootPlan) -> NoReturn:
    """Run the machine, forever."""
    try:
        os.setsid()
        os.umask(0o022)
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # pods inherit the limit
        set_up(plan)
        services = Services(commands(plan.record))
        services.start("containerd")
        # The kubelet would also wait, but with a longer interval.
        processes.wait_until(configuration.CONTAINERD_SOCKET.exists, CONTAINERD_SECONDS)
        tag_images(plan.record.spec.name, plan.aliases)  # before a pod can use an alias
        for name in services.commands.keys() - {"containerd"}:
            services.start(name)
        services.watch()
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def set_up(plan: BootPlan) -> None:
    """Set up the machine's host name, file system, cgroups and network."""
    socket.sethostname(plan.record.spec.name)
    code = Path(cloudtwin.__file__).parents[1]
    host_paths = [code, Path(sys.prefix), Path(sys.base_prefix), *map(Path, plan.tools.values())]
    containerd = Path("/var/lib/containerd")
    layers = {containerd / layer: plan.images / layer for layer in image_copies.layers(plan.images)}
    folders = root_filesystem.Folders(
        plan.machine.disk, plan.machine.config, plan.shared, plan.shared_mount
    )
    account = {configuration.ACCOUNT: plan.cloud} if plan.record.spec.cloud else {}
    root_filesystem.build(folders, host_paths, {**layers, **account})
    root_filesystem.mount_cgroups(plan.cgroups.version, plan.cgroups.controllers)
    root_filesystem.mount_private_sysctls()
    LOGS.mkdir(exist_ok=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    links.reject_unknown_services()


def tag_images(name: str, aliases: Mapping[str, str]) -> None:
    """Tag local images as the published images that they replace.

    The machine runs without the images that fail, since its pods may not need them. Each failure is a line of the
    machine's log and an event of its Node.
    """
    for problem in image_aliases.create(aliases):
        print(f"The machine {name!r} {problem}", flush=True)
        record_event(name, f"The machine {problem}")


def record_event(name: str, message: str) -> None:
    """Record a failed alias as an event of the machine's Node, with the kubelet's permissions."""
    # Imported here: this process lives as long as the machine, and few machines need a client in it.
    from cloudtwin.kubernetes_api import ApiError, KubernetesClient
    from cloudtwin.nodes import node_objects

    client = KubernetesClient(CONFIG_FOLDER, "kubelet", str(CONTROL_PLANE), API_PORT)
    try:
        node_objects.warn(client, name, ALIAS_FAILED, message)
    except (ApiError, OSError) as error:
        print(f"The event {ALIAS_FAILED} was not recorded: {error}", flush=True)


def credential_options(cloud: bool) -> list[str]:  # noqa: FBT001  the only option
    """Return the kubelet's options for its credential provider, which only cloud machines have."""
    if not cloud:
        return []
    return [
        f"--image-credential-provider-config={CONFIG_FOLDER / configuration.PROVIDER_CONFIG}",
        f"--image-credential-provider-bin-dir={CONFIG_FOLDER / configuration.PROVIDER_FOLDER}",
    ]


def commands(record: MachineRecord) -> dict[str, Sequence[str]]:
    """Return the command line of each service of a machine."""
    spec, config = record.spec, CONFIG_FOLDER
    services: dict[str, Sequence[str]] = {
        "containerd": ["containerd", f"--config={config / 'containerd.toml'}"],
        KUBELET: [
            record.tools[KUBELET],
            f"--config={config / 'kubelet.yaml'}",
            f"--kubeconfig={config / 'kubelet.kubeconfig'}",
            f"--hostname-override={spec.name}",
            f"--node-ip={record.address.ip}",
            *credential_options(bool(spec.cloud)),
            "--node-labels=" + ",".join(f"{k}={v}" for k, v in configuration.labels(spec).items()),
        ],
        "kube-proxy": [
            record.tools["kube-proxy"],
            f"--kubeconfig={config / 'kube-proxy.kubeconfig'}",
            f"--hostname-override={spec.name}",
            "--proxy-mode=iptables",
            f"--cluster-cidr={PODS_NETWORK}",
            # The connection table is the host's: do not change its size or timeouts.
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        ],
    }
    if spec.cloud:
        services["agent"] = [sys.executable, "-m", "cloudtwin.nodes.machine.agent"]
    elif spec.role is Role.GPU and spec.gpus:
        plugin = [sys.executable, "-m", "cloudtwin.nodes.kubelet.device_plugin", str(spec.gpus)]
        services["device-plugin"] = plugin
    return services
