"""The sockets of one group among all sockets of this process, and how they are shut down.

A library must not touch connections that it did not open: connections to an object store or a logging
service may be opened while a group is built. gloo has one epoll instance for each group, and registers in it the
group's listening socket and every connection to a peer. The listening socket is new and bound to
one interface's address, which identifies the instance. The connection to the group's store is
identified by its peer's address.
"""

import contextlib
import os
import resource
import socket
from collections.abc import Iterator

_EPOLL = "anon_inode:[eventpoll]"
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared, not bound


def socket_names() -> dict[int, str]:
    """Return the kernel's name of each socket of this process, by descriptor; in practice, no name is reused."""
    return {fd: name for fd, name in _descriptors() if name.startswith("socket:")}


def group_sockets(earlier_sockets: frozenset[str], store: tuple[str, int]) -> dict[int, str]:
    """Return the sockets of a group, including its listening socket.

    Args:
        earlier_sockets: names of the sockets that were open before the group was built.
        store: host and port of the group's store.

    Returns:
        Name of each socket, by descriptor.
    """
    entries = dict(_descriptors())
    new_sockets = {
        fd: name
        for fd, name in entries.items()
        if name.startswith("socket:") and name not in earlier_sockets
    }
    sockets = {fd: name for fd, name in new_sockets.items() if _is_connected_to(fd, *store)}
    for epoll in (fd for fd, name in entries.items() if name == _EPOLL):
        watched_descriptors = [fd for fd in _watched_descriptors(epoll) if fd in new_sockets]
        if any(_listens_on_one_address(fd) for fd in watched_descriptors):
            sockets |= {fd: new_sockets[fd] for fd in watched_descriptors}
    return sockets


def shut_down(descriptor: int, name: str) -> None:
    """Shut down one connected TCP socket, if its descriptor still refers to that socket."""
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/self/fd/{descriptor}") != name:  # noqa: PTH115 - as below
            return
        with _as_socket(descriptor) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.getpeername()  # a listening socket has no peer and stays open
                connection.shutdown(socket.SHUT_RDWR)


def _descriptors() -> Iterator[tuple[int, str]]:
    try:
        numbers = [int(entry) for entry in os.listdir("/proc/self/fd")]  # noqa: PTH208 - fast
    except OSError:  # no descriptor is left to list them with
        numbers = list(range(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    for number in numbers:
        with contextlib.suppress(OSError):
            yield number, os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - fast


def _watched_descriptors(epoll: int) -> Iterator[int]:
    """Yield the descriptors that an epoll instance watches."""
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{epoll}") as lines:  # noqa: PTH123
        for line in lines:
            if line.startswith("tfd:"):
                yield int(line.split()[1])


def _listens_on_one_address(descriptor: int) -> bool:
    with contextlib.suppress(OSError), _as_socket(descriptor) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return bool(listens) and connection.getsockname()[0] not in _WILDCARDS
    return False


def _is_connected_to(descriptor: int, host: str, port: int) -> bool:
    with contextlib.suppress(OSError), _as_socket(descriptor) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        address, peer_port = connection.getpeername()[:2]
        is_literal = host.replace(".", "").isdigit() or ":" in host
        return bool(
            peer_port == port and (not is_literal or address.removeprefix("::ffff:") == host)
        )
    return False


@contextlib.contextmanager
def _as_socket(descriptor: int) -> Iterator[socket.socket]:
    """Access a descriptor as a socket without another descriptor: there may be none left."""
    connection = socket.socket(fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()
