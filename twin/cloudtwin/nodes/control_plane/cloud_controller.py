"""Deletion of the Node of a machine that no longer exists, as a cloud controller manager does it.

Otherwise the pods of a machine that vanished stay Terminating forever: Kubernetes deletes them only after their
Node. A machine that is frozen or disconnected still exists, so its Node stays.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes import node_objects
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.network.addressing import API_PORT, CONTROL_PLANE

PERIOD_SECONDS = 0.5
log = logging.getLogger(__name__)


class CloudController:
    """Controller that deletes the Nodes of gone machines of one twin."""

    def __init__(
        self,
        layout: Layout,
        delay_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout = layout
        self._delay_seconds = delay_seconds
        self._clock = clock
        self._gone_since: dict[str, float] = {}

    async def run(self) -> None:
        """Delete the Nodes of gone machines until cancelled."""
        while True:
            for name in self.overdue(gone_machines(self._layout.machines)):
                await asyncio.to_thread(self._delete_node, name)
            await asyncio.sleep(PERIOD_SECONDS)

    def overdue(self, gone_now: set[str]) -> list[str]:
        """Return the machines that have been gone for the delay and whose Nodes have not been deleted."""
        now = self._clock()
        self._gone_since = {name: self._gone_since.get(name, now) for name in gone_now}
        due_names = [
            n for n, since in self._gone_since.items() if now - since >= self._delay_seconds
        ]
        return sorted(due_names)

    def _delete_node(self, name: str) -> None:
        if name not in gone_machines(self._layout.machines):
            return  # booted again while other Nodes were deleted; its kubelet registers the Node only once
        client = KubernetesClient(self._layout.pki, "admin", str(CONTROL_PLANE), API_PORT)
        try:
            node_objects.delete(client, name)
        except (ApiError, OSError) as error:
            log.warning("the Node of %s, which is gone, cannot be deleted yet: %s", name, error)
            return
        log.info("deleted the Node of %s: the machine is gone", name)
        self._gone_since[name] = float("inf")


def gone_machines(machines: Path) -> set[str]:
    """Return the machines that have booted and whose init process is dead."""
    records = machines.glob("*/process.json")
    process_by_machine = {path.parent.name: processes.load(path) for path in records}
    return {name for name, process in process_by_machine.items() if process and not process.alive}
