"""Process groups whose workers are in one process, one thread per worker, with real sockets."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import TCPStore

from everstep.elastic.transport.abortable_group import AbortableGroup, GroupAddress
from everstep.elastic.transport.group import PeerLostError
from everstep.elastic.transport.stalls import Stall

CPU = torch.device("cpu")
WAIT_SECONDS = 100.0  # limit on a busy machine; all waits end much earlier


@contextlib.contextmanager
def group_store() -> Iterator[int]:
    """Run the store of a group; yield its port."""
    timeout = timedelta(seconds=WAIT_SECONDS)
    store = TCPStore(
        "127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=False, timeout=timeout
    )
    yield store.port
    del store


def run(
    port: int,
    size: int,
    work: Callable[[AbortableGroup], Any],
    on_stall: Callable[[], None] = lambda: None,
    report: Callable[[Stall], None] | None = None,
) -> list[Any]:
    """Return the result or the PeerLostError of each of `size` workers, by rank."""
    results: list[Any] = [None] * size

    def run_rank(rank: int) -> None:
        address = GroupAddress(os.getpid(), "127.0.0.1", port, rank, size)
        process_group = AbortableGroup(address, CPU, on_stall, report)
        try:
            process_group.build()
            results[rank] = work(process_group)
        except PeerLostError as error:
            results[rank] = error
        finally:
            process_group.close()

    threads = [threading.Thread(target=run_rank, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    return results
