"""The address at which peers reach this node, and the form HOST:PORT of addresses."""

import contextlib
import socket

from everstep.catalog.names import ETCD_CLIENT_PORT


def address_towards(endpoint: str) -> str | None:
    """Return this node's address on its route to etcd, which peers use too; None without a route.

    IPv4 is preferred: the local etcd and gloo's default interface may have no IPv6.

    Args:
        endpoint: `HOST:PORT` of etcd; several separated by commas.
    """
    target = etcd_address(endpoint.split(",", maxsplit=1)[0])
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)  # sends nothing
            return str(probe.getsockname()[0])
    return None


def etcd_address(endpoint: str) -> tuple[str, int]:
    """Return host and port of an endpoint of etcd; etcd's port if it is missing."""
    has_port = endpoint.rpartition(":")[2].isdigit()
    return split_address(endpoint if has_port else f"{endpoint}:{ETCD_CLIENT_PORT}")


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, without the brackets around an IPv6 address.

    Raises:
        ValueError: there is no port.
    """
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
