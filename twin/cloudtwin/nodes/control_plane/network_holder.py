"""The network holder of a twin: holds its network, relays the host's connections and acts as the cloud's controller.

It owns the network namespace with the switch and forwards connections from the host to the API server and the registry.
Started as `python -m cloudtwin.nodes.control_plane.network_holder STATE`.
"""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.nodes.control_plane import relay
from cloudtwin.nodes.control_plane.cloud_controller import CloudController
from cloudtwin.nodes.control_plane.components import NETWORK_HOLDER, process_in_network
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import syscalls
from cloudtwin.nodes.linux.processes import Process
from cloudtwin.nodes.network import addressing, links

PORTS = {"port": addressing.API_PORT, "registry_port": addressing.REGISTRY_PORT}
"""Key of the settings with a host port -> port of the control plane."""

NODE_DELETION_SECONDS = 5.0  # delay after a machine is gone; about a minute on AWS and Azure


def main(state: Path) -> None:
    """Run until killed."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    layout = Layout(state)
    settings = files.read_json(layout.settings) or {}
    listeners = {port: relay.listen(int(settings.get(name, 0))) for name, port in PORTS.items()}
    join_or_build_network(layout)
    ports = {name: listeners[port].getsockname()[1] for name, port in PORTS.items()}
    files.write_json(layout.settings, settings | ports)
    if process := Process.of(os.getpid()):
        process.save(layout.process(NETWORK_HOLDER))
    controller = CloudController(
        layout, float(settings.get("node_deletion_seconds", NODE_DELETION_SECONDS))
    )
    asyncio.run(_work(listeners, controller))


async def _work(listeners: Mapping[int, socket.socket], controller: CloudController) -> None:
    relays = (relay.serve(listener, port) for port, listener in listeners.items())
    await asyncio.gather(*relays, controller.run())


def join_or_build_network(layout: Layout) -> None:
    """Enter the network namespace that a component still holds, or build a new one."""
    if running := process_in_network(layout):
        syscalls.enter(links.namespace_of(running.pid), syscalls.Namespace.NETWORK)
        return
    syscalls.unshare(syscalls.Namespace.NETWORK)
    links.build_switch()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except TwinError as error:
        sys.exit(str(error))
