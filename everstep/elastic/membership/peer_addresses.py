"""The addresses to which one agent sends its heartbeats. The sending thread never waits for DNS."""

import socket
import threading
import time
from typing import Any

from everstep.catalog.addresses import split_address

RESOLVE_INTERVAL_SECONDS = 5.0  # interval between two attempts to resolve one name

SocketAddress = Any  # host and port, and two more numbers in IPv6


class PeerAddresses:
    """Addresses of endpoints, for a socket of one family. Only one thread may call `find`.

    The name in each endpoint is resolved in a separate thread; after a failure, again once the interval has passed.

    Args:
        family: family of the socket; an IPv6 socket reaches IPv4 peers through IPv4-mapped addresses.
    """

    def __init__(self, family: int) -> None:
        self._family = family
        self._addresses: dict[str, SocketAddress] = {}  # by endpoint
        self._resolve_at: dict[str, float] = {}  # by endpoint without an address

    def find(self, endpoint: str) -> SocketAddress | None:
        """Return the address of an endpoint; None if it is empty, or while its name has not been resolved."""
        if not endpoint:
            return None
        if endpoint in self._addresses:
            return self._addresses[endpoint]
        if time.monotonic() < self._resolve_at.get(endpoint, 0.0):
            return None
        try:
            self._resolve(endpoint, socket.AI_NUMERICHOST)
        except OSError:  # a name
            self._resolve_at[endpoint] = float("inf")  # until the thread has ended
            threading.Thread(target=self._resolve_name, args=(endpoint,), daemon=True).start()
        return self._addresses.get(endpoint)

    def _resolve_name(self, endpoint: str) -> None:
        try:
            self._resolve(endpoint)
        except OSError:  # a name that was just created may not be in the DNS yet
            self._resolve_at[endpoint] = time.monotonic() + RESOLVE_INTERVAL_SECONDS

    def _resolve(self, endpoint: str, flags: int = 0) -> None:
        if self._family == socket.AF_INET6:
            flags |= socket.AI_V4MAPPED
        host, port = split_address(endpoint)
        results = socket.getaddrinfo(host, port, self._family, socket.SOCK_DGRAM, flags=flags)
        self._addresses[endpoint] = results[0][4]
