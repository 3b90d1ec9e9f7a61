"""Addresses of the form HOST:PORT, and the endpoint of etcd, whose port may be missing."""

from everstep.catalog.names import ETCD_CLIENT_PORT


def etcd_endpoints(endpoint: str) -> tuple[str, ...]:
    """Return the endpoints that a rendezvous endpoint lists, separated by commas."""
    return tuple(item.strip() for item in endpoint.split(",") if item.strip())


def etcd_address(endpoint: str) -> tuple[str, int]:
    """Return host and port of an etcd endpoint; without a port, etcd's default client port."""
    has_port = endpoint.rpartition(":")[2].isdigit()
    return split_address(endpoint if has_port else f"{endpoint}:{ETCD_CLIENT_PORT}")


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`, without the brackets around an IPv6 address.

    Raises:
        ValueError: the port is missing or not a number.
    """
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
