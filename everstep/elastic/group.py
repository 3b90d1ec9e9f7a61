"""Joining one generation's process group, and leaving it.

Used by a worker between `worker.attach()` and its training loop. The process group meets at the
store that rank 0's agent holds; its time-out is long, since losses are noticed by leases and not by
waiting.
"""

import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

COLLECTIVE_SECONDS = 600.0
MEET_SECONDS = 120.0
_SIOCGIFADDR = 0x8915


class PeerLostError(Exception):
    """A collective failed: somebody in the group is gone."""


@dataclass(frozen=True)
class Seat:
    """This worker's place.

    Attributes:
        rank: from 0; 0 writes checkpoints.
        world_size: workers in the group.
        local_rank: place on this node.
        store: for a few words between the workers of this generation; None where there is only one.
        neighbours: workers on this machine, this one included, also those in other containers.
        sum: sums a tensor over the group's workers, in place; PeerLostError where one is gone.
        begin_sum: begins to; calling what it gives waits for the end. None where there is no such way.
    """

    rank: int
    world_size: int
    local_rank: int
    store: Store | None
    neighbours: int
    sum: Callable[[torch.Tensor], None]
    begin_sum: Callable[[torch.Tensor], Callable[[], None]] | None = None


def join(generation: int) -> Seat:
    """Take this worker's seat, as torchrun's environment names it; without one, alone.

    Raises:
        PeerLostError: the others could not be met.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    if "MASTER_ADDR" not in os.environ:
        return Seat(0, 1, 0, None, 1, sum_in_default_group)
    with losses_named():
        server = TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            wait_for_workers=False,
            use_libuv=False,  # Debian's torch is built without it
            timeout=timedelta(seconds=MEET_SECONDS),
        )
        store = PrefixStore(f"workers/{generation}", server)
        choose_interface()
        dist.init_process_group(
            "nccl" if torch.cuda.is_available() else "gloo",
            store=PrefixStore("group", store),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=COLLECTIVE_SECONDS),
        )
        neighbours = _count_neighbours(store, rank, world_size)
        return Seat(rank, world_size, local_rank, store, neighbours, sum_in_default_group)


def agree(seat: Seat, question: str, answer: str) -> str:
    """Rank 0's answer, for everybody."""
    if seat.store is None:
        return answer
    with losses_named():
        if seat.rank == 0:
            seat.store.set(question, answer)
        return str(seat.store.get(question).decode())


def sum_in_default_group(tensor: torch.Tensor) -> None:
    """Sum over all workers of torch's default group, in place; PeerLostError where one is gone."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        with losses_named():
            dist.all_reduce(tensor)


@contextlib.contextmanager
def losses_named() -> Iterator[None]:
    """Turn the errors of torch's collectives and stores into a `PeerLostError`."""
    try:
        yield
    except RuntimeError as error:  # all of torch.distributed's errors are RuntimeErrors
        raise PeerLostError(str(error)) from error


def _count_neighbours(store: Store, rank: int, world_size: int) -> int:
    """Workers that share this machine's processors: containers of one kernel have one boot id."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = f"unknown-{rank}"
    store.set(f"boot/{rank}", boot)
    return [store.get(f"boot/{other}").decode() for other in range(world_size)].count(boot)


def choose_interface() -> None:
    """Have gloo and NCCL use the interface that carries this pod's address; they would ask the host's name."""
    address = os.environ.get("POD_IP")
    if not address or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    name = "lo" if address.startswith("127.") else _interface_with(address)
    if name:
        os.environ["GLOO_SOCKET_IFNAME"] = name
        os.environ.setdefault("NCCL_SOCKET_IFNAME", name)


def _interface_with(address: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # it has no IPv4 address
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None
