"""Relay of connections from the host to the API server and the registry, which are in another network namespace.

The listening socket is opened on 127.0.0.1 in the host's namespace and stays there. The process then enters the
twin's namespace, so that its own connections start in the network of the servers. No address, route or rule is added
to the host.
"""

import asyncio
import contextlib
import socket
from functools import partial

from cloudtwin.nodes.network import addressing

CHUNK = 1 << 16


def listen(port: int) -> socket.socket:
    """Open the listening socket on this port, or on a free one if the port is in use or 0."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    listener.settimeout(0)  # asyncio waits, not the socket
    return listener


async def serve(listener: socket.socket, port: int) -> None:
    """Forward every connection to this port of the control plane, forever."""
    server = await asyncio.start_server(partial(_forward, port), sock=listener)
    async with server:
        await server.serve_forever()


async def _forward(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        upstream = await asyncio.open_connection(str(addressing.CONTROL_PLANE), port)
    except OSError:
        writer.transport.abort()  # a reset, so that the client fails immediately
        return
    await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))
    for side in (upstream[1], writer):
        side.close()
        with contextlib.suppress(OSError):
            await side.wait_closed()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the source ends, then end the target; abort the target on errors."""
    try:
        while chunk := await source.read(CHUNK):
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:
        target.transport.abort()
