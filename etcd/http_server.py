"""HTTP server of an etcd member, for its readiness probe and for the response of a member without data."""

import ipaddress
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class MemberHttpServer(ThreadingHTTPServer):
    """A server at one address of this machine, or on all addresses.

    As for etcd itself, both `0.0.0.0` and `::` mean all IPv4 and IPv6 addresses: a pod in an IPv6-only cluster has no
    IPv4 address.

    Args:
        host: IP address; empty for all.
        port: port; 0 for any.
        handler: handler of the requests.
    """

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        is_dual = _is_unspecified(host) and socket.has_dualstack_ipv6()
        self.address_family = socket.AF_INET6 if is_dual or ":" in host else socket.AF_INET
        super().__init__(("" if is_dual else host, port), handler)

    def server_bind(self) -> None:
        """Bind the socket; an IPv6 socket also accepts IPv4 connections."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


def _is_unspecified(host: str) -> bool:
    try:
        return not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False
