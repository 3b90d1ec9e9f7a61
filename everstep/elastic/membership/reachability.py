"""Probes of the connections between nodes, in both directions.

A node that reaches etcd may still not reach its peers, or its peers may not reach it, because of a
security group, a blocked port or a network policy. Each agent listens on its own port. A probe
connects to it, and the peer connects back before it responds, so that one probe tests both directions.
"""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from everstep.catalog.addresses import split_address

PROBE_SECONDS = 2.0  # timeout of each direction; a live peer responds in milliseconds
PARALLEL_PROBES = 16
ACCEPT_RETRY_SECONDS = 0.1  # pause after a connection that cannot be accepted
MAX_MESSAGE_BYTES = 200


class ProbeServer:
    """Server that responds to the probes of other agents, and client that probes their servers.

    Args:
        address: address at which the others reach this node.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None
        self._port = 0
        self._source: tuple[str, int] | None = None

    @property
    def endpoint(self) -> str:
        """`host:port` that other agents probe; empty before the start."""
        return f"{self._address}:{self._port}" if self._port else ""

    @property
    def listener(self) -> socket.socket:
        """The listening socket, after the start."""
        assert self._socket is not None  # noqa: S101 - start() sets it first
        return self._socket

    def start(self) -> None:
        """Start to listen and to respond to probes."""
        self._socket = _listen(self._address)
        bound_address, self._port = self._socket.getsockname()[:2]
        if bound_address == self._address:  # the peer connects back to the source of a probe
            self._source = (bound_address, 0)
        threading.Thread(
            target=_accept, args=(self._socket,), name="everstep-reachability", daemon=True
        ).start()

    def close(self) -> None:
        """Stop listening."""
        if self._socket:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
            self._socket.close()

    def probe(self, targets: Collection[tuple[str, str]]) -> frozenset[str]:
        """Return the identities that cannot be reached, or cannot reach this node.

        Args:
            targets: identities and endpoints.
        """
        with ThreadPoolExecutor(min(PARALLEL_PROBES, len(targets))) as pool:
            results = pool.map(lambda target: self._reaches(target[1]), targets)
        return frozenset(
            name for (name, _), is_reached in zip(targets, results, strict=True) if not is_reached
        )

    def _reaches(self, endpoint: str) -> bool:
        try:
            with socket.create_connection(
                split_address(endpoint), PROBE_SECONDS, self._source
            ) as connection:
                # The peer's own attempt takes up to PROBE_SECONDS.
                connection.settimeout(2 * PROBE_SECONDS)
                connection.sendall(_line({"port": self._port}))
                return bool(_read(connection).get("reached"))
        except (OSError, ValueError):
            return False


def _accept(listener: socket.socket) -> None:
    while True:
        try:
            connection, peer = listener.accept()
        except OSError:
            if listener.fileno() < 0:  # closed
                return
            time.sleep(ACCEPT_RETRY_SECONDS)  # for example, this process has no free descriptor
            continue
        arguments = (connection, str(peer[0]))
        threading.Thread(target=_respond, args=arguments, daemon=True).start()


def _respond(connection: socket.socket, host: str) -> None:
    """Connect back to the prober, at the source address of its probe, and report the result.

    A connection without a message is the other half of this node's own probe.
    """
    with contextlib.suppress(OSError, ValueError), connection:
        connection.settimeout(PROBE_SECONDS)
        port = _read(connection).get("port")
        if isinstance(port, int):
            connection.sendall(_line({"reached": _connects(host, port)}))


def _connects(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), PROBE_SECONDS).close()
    except (OSError, OverflowError):
        return False
    return True


def _listen(address: str) -> socket.socket:
    """Listen on an address; on all addresses if it is a name, or does not belong to this machine."""
    try:
        family, *_, socket_address = socket.getaddrinfo(
            address, 0, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
        return socket.create_server(socket_address, family=family)
    except OSError:
        is_dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual else socket.AF_INET
        return socket.create_server(("", 0), family=family, dualstack_ipv6=is_dual)


def _line(message: dict[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _read(connection: socket.socket) -> dict[str, object]:
    """Return one message; an empty message if the other end closed the connection without sending any."""
    with connection.makefile("rb") as reader:
        message = json.loads(reader.readline(MAX_MESSAGE_BYTES) or b"{}")
    if not isinstance(message, dict):
        raise ValueError(f"a probe is a JSON object, not {message!r}")
    return message
