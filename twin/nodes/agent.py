"""All that a cloud puts on its machines beside Kubernetes, in one process: metadata, storage drivers, fake GPUs.

One process and not three, since every machine has it and Python alone takes ten megabytes. It sleeps but for one
look a second at two small files; what needs gRPC is loaded when it is first wanted.

Started in a machine as `python -m twin.nodes.agent`.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from twin.nodes import cluster, drivers, files, machine_config, metadata
from twin.nodes.addressing import API_PORT, CONTROL_PLANE
from twin.nodes.api import Api, ApiError
from twin.nodes.metadata import Service

if TYPE_CHECKING:
    from twin.nodes.csi import Plugin

LOOK_SECONDS = 1.0
INSIDE = machine_config.INSIDE
ACKNOWLEDGEMENT = Path("/var/lib/everstep/acknowledged.json")


@dataclass
class Drivers:
    """The storage drivers that run on this machine.

    Attributes:
        node: its name.
        api: how their rights are used.
    """

    node: str
    api: Api
    _running: dict[str, tuple["Plugin", contextlib.ExitStack]] = field(default_factory=dict)
    _tainted: set[str] = field(default_factory=set)

    def look(self, wanted: Sequence[str]) -> None:
        """Start and end drivers so that those wanted run; take the start-up taint off where one has started."""
        for driver in set(wanted) - set(self._running):
            self._start(driver)
        for driver in set(self._running) - set(wanted):
            self._running.pop(driver)[1].close()
            self._tainted.discard(driver)
        for driver in sorted(self._tainted):
            if self._running[driver][0].registered.is_set() and self._untaint(driver):
                self._tainted.discard(driver)

    def _start(self, driver: str) -> None:
        from twin.nodes import csi

        plugin = csi.Plugin(driver, self.node, machine_config.ACCOUNT, machine_config.SHARED)
        stack = contextlib.ExitStack()
        stack.enter_context(csi.serving(plugin))
        self._running[driver] = plugin, stack
        if driver in drivers.STARTUP_TAINTS:
            self._tainted.add(driver)

    def _untaint(self, driver: str) -> bool:
        """Take the taint off; False where that must be tried again."""
        path = f"{cluster.NODES}/{self.node}"
        try:
            node = self.api.get(path)
            if patch := without_taint(node, drivers.STARTUP_TAINTS[driver]):
                self.api.merge(path, patch)
        except (ApiError, OSError) as error:
            print(f"{driver}: the start-up taint stays for now: {error}", flush=True)
            return False
        return True


def without_taint(node: dict[str, Any], key: str) -> dict[str, Any] | None:
    """Return the change that takes a taint off a Node; None where it has none.

    It names the version it was made for: somebody else may change the taints at the same moment.
    """
    taints = node["spec"].get("taints", [])
    kept = [taint for taint in taints if taint["key"] != key]
    if kept == taints:
        return None
    return {
        "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
        "spec": {"taints": kept},
    }


def main() -> NoReturn:
    """Be the machine's agent."""
    facts = files.read_json(INSIDE / "instance.json") or {}
    service = Service(facts, INSIDE / "notice.json", ACKNOWLEDGEMENT)
    threading.Thread(target=metadata.serve, args=(service,), daemon=True).start()
    if facts["gpus"]:
        threading.Thread(target=offer_devices, args=(service,), daemon=True).start()
    running = Drivers(facts["name"], Api(INSIDE, "agent", str(CONTROL_PLANE), API_PORT))
    while True:
        wanted = (files.read_json(machine_config.ACCOUNT / "drivers.json") or {}).get("drivers", [])
        running.look(wanted)
        time.sleep(LOOK_SECONDS)


def offer_devices(service: Service) -> NoReturn:
    """Offer the machine's GPUs for as long as a device plugin is there."""
    wanted = service.plugins.some
    while True:
        wanted.wait()
        from twin.nodes import device_plugin

        device_plugin.offer(int(service.facts["gpus"]), wanted.is_set)


if __name__ == "__main__":
    main()
