"""The agent of a cloud machine: metadata service, CSI drivers and simulated GPUs in one process.

It is one process, since every cloud machine has it and each Python process takes ten megabytes. It reads one small file
every second; gRPC is loaded when it is first needed.

The first process of a machine starts it as `python -m cloudtwin.nodes.machine.agent`.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cloudtwin import files
from cloudtwin.files import DamagedFileError
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes import node_objects
from cloudtwin.nodes.kubelet import csi_drivers
from cloudtwin.nodes.layout import ACKNOWLEDGEMENT, DRIVERS, NOTICE
from cloudtwin.nodes.machine import configuration
from cloudtwin.nodes.metadata import server
from cloudtwin.nodes.metadata.server import MetadataService
from cloudtwin.nodes.network.addressing import API_PORT, CONTROL_PLANE

if TYPE_CHECKING:
    from cloudtwin.nodes.kubelet.csi import CsiPlugin

DRIVER_POLL_SECONDS = 1.0
CONFIG_FOLDER = configuration.CONFIG_FOLDER
DISK = Path("/var")  # mount point of the disk in a machine


@dataclass
class RunningDrivers:
    """The CSI drivers that run on this machine.

    Attributes:
        node: the machine's name.
        client: client with the permissions of the drivers.
        shared_mount: mount point of the folder that all machines share.
    """

    node: str
    client: KubernetesClient
    shared_mount: Path
    _plugins: dict[str, tuple["CsiPlugin", contextlib.ExitStack]] = field(default_factory=dict)
    _drivers_with_taint: set[str] = field(default_factory=set)

    def update(self, drivers: Sequence[str]) -> None:
        """Start and stop drivers so that exactly these run; remove the startup taints of drivers that have started."""
        for driver in set(drivers) - set(self._plugins):
            self._start(driver)
        for driver in set(self._plugins) - set(drivers):
            self._plugins.pop(driver)[1].close()
            self._drivers_with_taint.discard(driver)
        for driver in sorted(self._drivers_with_taint):
            if self._plugins[driver][0].registered.is_set() and self._untaint(driver):
                self._drivers_with_taint.discard(driver)

    def _start(self, driver: str) -> None:
        from cloudtwin.nodes.kubelet import csi

        plugin = csi.CsiPlugin(driver, self.node, configuration.ACCOUNT, self.shared_mount)
        stack = contextlib.ExitStack()
        stack.enter_context(csi.serving(plugin))
        self._plugins[driver] = plugin, stack
        if driver in csi_drivers.STARTUP_TAINTS:
            self._drivers_with_taint.add(driver)

    def _untaint(self, driver: str) -> bool:
        """Remove the startup taint; return False if that must be tried again."""
        path = f"{node_objects.NODES}/{self.node}"
        try:
            node = self.client.get(path)
            if patch := without_taint(node, csi_drivers.STARTUP_TAINTS[driver]):
                self.client.merge(path, patch)
        except (ApiError, OSError) as error:
            print(f"{driver}: the startup taint remains for now: {error}", flush=True)
            return False
        return True


def without_taint(node: dict[str, Any], key: str) -> dict[str, Any] | None:
    """Return the patch that removes a taint from a Node, or None if the Node has no such taint.

    The patch contains the Node's resource version, so that it fails if another client has changed the taints.
    """
    taints = node["spec"].get("taints", [])
    remaining_taints = [taint for taint in taints if taint["key"] != key]
    if remaining_taints == taints:
        return None
    return {
        "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
        "spec": {"taints": remaining_taints},
    }


def main() -> NoReturn:
    """Run the agent, forever."""
    facts = files.read_json(CONFIG_FOLDER / "instance.json") or {}
    service = MetadataService(facts, CONFIG_FOLDER / NOTICE, DISK / ACKNOWLEDGEMENT)
    threading.Thread(target=server.serve, args=(service,), daemon=True).start()
    if facts["gpus"]:
        threading.Thread(target=offer_devices, args=(service,), daemon=True).start()
    client = KubernetesClient(CONFIG_FOLDER, "agent", str(CONTROL_PLANE), API_PORT)
    running_drivers = RunningDrivers(facts["name"], client, Path(facts["shared_mount"]))
    problem = ""
    while True:
        previous_problem, problem = problem, update_drivers(running_drivers)
        if problem != previous_problem:
            print(problem, flush=True)
        time.sleep(DRIVER_POLL_SECONDS)


def update_drivers(running_drivers: RunningDrivers) -> str:
    """Start and stop drivers as the account specifies; return the problem if its list is damaged, else "".

    In that case the running drivers are kept: an exception would also end the metadata service.
    """
    try:
        stored_drivers = files.read_json(configuration.ACCOUNT / DRIVERS) or {}
    except DamagedFileError as error:
        return str(error)
    running_drivers.update(stored_drivers.get("drivers", []))
    return ""


def offer_devices(service: MetadataService) -> NoReturn:
    """Offer the machine's GPUs while a device plugin is connected, forever."""
    connection_open = service.plugins.any_open
    while True:
        connection_open.wait()
        from cloudtwin.nodes.kubelet import device_plugin

        device_plugin.offer(int(service.facts["gpus"]), connection_open.is_set)


if __name__ == "__main__":
    main()
