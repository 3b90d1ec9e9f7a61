"""The one process of a twin that is neither Kubernetes nor a machine.

It holds the network namespace with the switch, passes the host's connections on to the API server, and plays
the part of the cloud's controller. Started as `python -m twin.nodes.keeper <state folder>`.
"""

import asyncio
import logging
import os
import socket
import sys
from pathlib import Path

from twin.nodes import files, linux, network, relay
from twin.nodes.cloud_controller import CloudController
from twin.nodes.components import KEEPER, holder
from twin.nodes.layout import Layout
from twin.nodes.processes import Process

PATIENCE_SECONDS = 5.0  # a cloud takes longer; AWS and Azure delete the Node within a minute or so


def main(state: Path) -> None:
    """Run until killed."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    layout = Layout(state)
    settings = files.read_json(layout.settings) or {}
    listener = relay.listen(int(settings.get("port", 0)))
    join_or_build(layout)
    files.write_json(layout.settings, settings | {"port": listener.getsockname()[1]})
    me = Process.of(os.getpid())
    assert me is not None, "we are alive"  # noqa: S101 - cannot happen
    me.save(layout.process(KEEPER))
    controller = CloudController(layout, float(settings.get("patience", PATIENCE_SECONDS)))
    asyncio.run(_work(listener, controller))


async def _work(listener: socket.socket, controller: CloudController) -> None:
    await asyncio.gather(relay.serve(listener), controller.run())


def join_or_build(layout: Layout) -> None:
    """Enter the twin's network where a part of the control plane still holds it, else build it anew."""
    if living := holder(layout):
        linux.enter(network.namespace_of(living.pid), linux.Namespace.NETWORK)
        return
    linux.unshare(linux.Namespace.NETWORK)
    network.build_switch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
