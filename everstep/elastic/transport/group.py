"""A worker's rank in one generation's group, and the network interface that the group uses."""

import contextlib
import fcntl
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch._C._distributed_c10d import Store

from everstep.catalog.names import NODE_NAME_VARIABLE, POD_IP_VARIABLE

COLLECTIVE_SECONDS = 600.0
"""Longest wait for the other workers in a collective; then the waiting workers abort the group.

No collective may wait for the storage of the checkpoints, which may take longer: see `await_text`.
"""
FIRST_POLL_SECONDS, MAX_POLL_SECONDS = 0.01, 0.5  # pauses of a worker that waits for a text

_SIOCGIFADDR = 0x8915
_IPV6_ADDRESSES = Path("/proc/net/if_inet6")


class PeerLostError(Exception):
    """The group is broken: a worker of it is gone, or the group was aborted."""


@dataclass(frozen=True)
class RankAssignment:
    """This worker's rank in a generation.

    Attributes:
        rank: rank in the group, from 0.
        world_size: number of workers in the group.
        store: store of a few strings that this generation's workers share; None for a process without an agent.
        local_peers: number of workers on this machine, including this one and workers in other containers.
        sum: function that sums a tensor over the group's workers, in place; raises PeerLostError if one is gone.
        begin_all_reduce: function that starts such a sum; the returned function waits for the end. None if not
            supported.
        unequal_ranks: ranks whose state, when the group formed, had the same progress as the state of others but
            different bytes; they received the state of the majority.
        received_bytes: bytes of the state that this worker received when the group formed, by the rank that sent
            them.
        sources: ranks whose state the group continues from.
        shard: number of this worker's shard of the model; 0 if it has the whole model.
        shards: number of shards of the model, and of workers of a node that save it together.
    """

    rank: int
    world_size: int
    store: Store | None
    local_peers: int
    sum: Callable[[torch.Tensor], None]
    begin_all_reduce: Callable[[torch.Tensor], Callable[[], None]] | None = None
    unequal_ranks: tuple[int, ...] = ()
    received_bytes: Mapping[int, int] = field(default_factory=dict)
    sources: tuple[int, ...] = ()
    shard: int = 0
    shards: int = 1

    @classmethod
    def single(cls) -> "RankAssignment":
        """Return the assignment of a process without peers."""
        return cls(0, 1, None, 1, lambda _: None)


def broadcast_text(assignment: RankAssignment, key: str, text: str, source: int = 0) -> str:
    """Return the text of rank `source` on every rank, through the store's key `key`.

    The others wait for it without a limit: see `await_text`.
    """
    if assignment.store is None:
        return text
    if assignment.rank == source:
        set_text(assignment.store, key, text)
    return await_text(assignment.store, key)


def set_text(store: Store, key: str, text: str) -> None:
    """Set a text for which other workers of the group wait.

    Raises:
        PeerLostError: the group was aborted.
    """
    with convert_peer_losses():
        store.set(key, text)


def await_text(store: Store, key: str) -> str:
    """Return a text of a group's store once another worker has set it, however long that takes.

    The other worker reads or writes a checkpoint, for which there is no limit while its storage responds. If it is
    lost or gives up, the agents abort the group, which shuts down the connection to the store.

    Raises:
        PeerLostError: the group was aborted.
    """
    started_at = time.monotonic()
    with convert_peer_losses():
        while not store.check([key]):
            pause = (time.monotonic() - started_at) / 10  # so that the wait is at most 10% too long
            time.sleep(min(max(FIRST_POLL_SECONDS, pause), MAX_POLL_SECONDS))
        return str(store.get(key).decode())


@contextlib.contextmanager
def convert_peer_losses() -> Iterator[None]:
    """Convert the errors of torch's collectives and stores into a `PeerLostError`."""
    try:
        yield
    except RuntimeError as error:  # all of torch.distributed's errors are RuntimeErrors
        raise PeerLostError(str(error)) from error


def node_name() -> str:
    """Return the name of this worker's node."""
    return os.environ.get(NODE_NAME_VARIABLE) or os.uname().nodename


def choose_interface() -> None:
    """Make gloo and NCCL use the interface with this pod's address.

    By default, gloo resolves the host name, and NCCL chooses among all interfaces.
    """
    address = os.environ.get(POD_IP_VARIABLE)
    if not address or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    name = "lo" if address.startswith("127.") else _interface_with(address)
    if name:
        os.environ["GLOO_SOCKET_IFNAME"] = name
        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def _interface_with(address: str) -> str | None:
    if ":" in address:
        return _interface_with_ipv6(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # it has no IPv4 address
                interface = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                if socket.inet_ntoa(interface[20:24]) == address:
                    return name
    return None


def _interface_with_ipv6(address: str) -> str | None:
    """Return the interface with an IPv6 address, which the kernel lists in a file: SIOCGIFADDR is for IPv4 only."""
    # OSError: a kernel without IPv6; ValueError: another text with a colon.
    with contextlib.suppress(OSError, ValueError):
        digits = ipaddress.IPv6Address(address).packed.hex()
        for line in _IPV6_ADDRESSES.read_text().splitlines():
            listed_digits, *_, name = line.split()
            if listed_digits == digits:
                return name
    return None
