"""The address at which peers reach this node."""

import contextlib
import socket

from everstep.catalog.addresses import etcd_address, etcd_endpoints


def local_address_to(endpoint: str) -> str | None:
    """Return the local address from which this node reaches etcd, for peers to connect to.

    IPv4 is preferred: the local etcd and gloo's default interface may have no IPv6.

    Args:
        endpoint: `HOST:PORT` of etcd; several separated by commas, of which the first with an address is used.

    Returns:
        None without a route or an endpoint.
    """
    targets = [etcd_address(member) for member in etcd_endpoints(endpoint)]
    for family in (socket.AF_INET, socket.AF_INET6):
        for target in targets:
            # UnicodeError: a label of the name is too long for DNS.
            with (
                contextlib.suppress(OSError, UnicodeError),
                socket.socket(family, socket.SOCK_DGRAM) as probe,
            ):
                probe.connect(target)  # sends nothing
                return str(probe.getsockname()[0])
    return None
