"""The address at which peers reach this node."""

import socket

from everstep.catalog.names import ETCD_CLIENT_PORT


def address_towards(endpoint: str) -> str | None:
    """Return this node's address on its route to etcd, which peers use too; None without a route.

    Args:
        endpoint: `HOST:PORT` of etcd; several separated by commas.
    """
    host, port = split_address(endpoint.split(",", maxsplit=1)[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError:
            return None
        return str(probe.getsockname()[0])


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; etcd's port if it is missing."""
    host, _, port = address.rpartition(":")
    return host or address, int(port) if port.isdigit() else ETCD_CLIENT_PORT
