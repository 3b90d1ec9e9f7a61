"""Lets the host reach the API server, which stands in a network namespace of its own.

The listening socket is opened on 127.0.0.1 in the host's namespace and keeps belonging to it; the process
then moves, so that every connection it makes starts beside the API server. No address, route or rule is added
to the host.
"""

import asyncio
import contextlib
import socket

from twin.nodes import addressing

CHUNK = 1 << 16


def listen(port: int) -> socket.socket:
    """Open the listening socket on this port, or on a free one where it is taken or 0."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    listener.settimeout(0)  # asyncio waits, not the socket
    return listener


async def serve(listener: socket.socket) -> None:
    """Pass every connection on to the API server, for ever."""
    server = await asyncio.start_server(_pass_on, sock=listener)
    async with server:
        await server.serve_forever()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        onward = await asyncio.open_connection(str(addressing.CONTROL_PLANE), addressing.API_PORT)
    except OSError:
        writer.transport.abort()  # a reset: the client sees at once that nobody is there
        return
    await asyncio.gather(_copy(reader, onward[1]), _copy(onward[0], writer))
    for side in (onward[1], writer):
        side.close()
        with contextlib.suppress(OSError):
            await side.wait_closed()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy until the source ends, then tell the target so; a broken side ends the other."""
    try:
        while chunk := await source.read(CHUNK):
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:
        target.transport.abort()
