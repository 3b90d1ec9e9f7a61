"""Workers of one group, each a process with its own GPU, and the functions that they run in tests."""

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore, TCPStore

from everstep.elastic.transport.abortable_group import AbortableGroup, GroupAddress, nccl_backend
from everstep.elastic.transport.group import PeerLostError
from tests.everstep.elastic.transport.process_groups import WAIT_SECONDS, group_store

ERROR_HANDLING = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
NUMEL = 1 << 20  # number of elements, so that a tensor is larger than a chunk of NCCL
FINISHED, LOST = "finished", "lost"

Work = Callable[["Rank"], Any]


class Rank:
    """One worker, in its own process.

    Attributes:
        number: rank, and number of the GPU.
        size: number of workers.
        device: its GPU.
        released: event that the test sets when other workers have their results.
    """

    def __init__(self, number: int, size: int, port: int, released: Any) -> None:
        self.number, self.size, self.released = number, size, released
        self.device = torch.device("cuda", number)
        self._port = port

    def process_group(
        self, generation: int, on_stall: Callable[[], None] = lambda: None
    ) -> AbortableGroup:
        """Return a group of all workers, already built."""
        address = GroupAddress(generation, "127.0.0.1", self._port, self.number, self.size)
        process_group = AbortableGroup(address, self.device, on_stall)
        process_group.build()
        return process_group

    def store(self) -> TCPStore:
        """Return a connection to the store of all groups."""
        wait = timedelta(seconds=WAIT_SECONDS)
        return TCPStore(
            "127.0.0.1",
            self._port,
            is_master=False,
            wait_for_workers=False,
            use_libuv=False,
            timeout=wait,
        )


def _run(work: Work, number: int, size: int, port: int, released: Any, results: Any) -> None:
    os.environ[ERROR_HANDLING] = "0"  # as `everstep launch` sets it
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    try:
        torch.cuda.set_device(number)
        result = work(Rank(number, size, port, released))
    except Exception:
        result = traceback.format_exc()
    results.put((number, result))
    results.close()
    results.join_thread()
    # Skip the destructors of groups whose peers are gone.
    os._exit(0)


@contextlib.contextmanager
def running_ranks(work: Work, size: int) -> Iterator["Ranks"]:
    """Start the workers; kill those that still run at the end."""
    context = multiprocessing.get_context("spawn")
    results, released = context.Queue(), context.Event()
    with group_store() as port:
        processes = [
            context.Process(target=_run, args=(work, number, size, port, released, results))
            for number in range(size)
        ]
        for process in processes:
            process.start()
        try:
            yield Ranks(processes, results, released)
        finally:
            for process in processes:
                process.kill()
                process.join()


class Ranks:
    """The worker processes of a test, as the test sees them."""

    def __init__(self, processes: Any, results: Any, released: Any) -> None:
        self._processes, self._results, self._released = processes, results, released

    def results(self, count: int) -> dict[int, Any]:
        """Return the results of the first `count` workers that have one, by rank."""
        results: dict[int, Any] = {}
        for _ in range(count):
            try:
                number, result = self._results.get(timeout=WAIT_SECONDS)
            except queue.Empty:
                codes = [process.exitcode for process in self._processes]
                raise AssertionError(f"no result in {WAIT_SECONDS} s; exit codes {codes}") from None
            results[number] = result
        return results

    def release(self) -> None:
        """Let the workers that wait for others' results continue to their end."""
        self._released.set()

    def exit_code(self, number: int) -> int | None:
        """Return the exit code of a worker once it has ended."""
        self._processes[number].join(WAIT_SECONDS)
        code: int | None = self._processes[number].exitcode
        return code


# --- one GPU ---


def build_use_and_abort_twice(rank: Rank) -> list[Any]:
    """Twice build a communicator of one rank on another thread, sum and abort."""
    observed: list[Any] = []
    store, backends = rank.store(), list[Any]()  # kept: their destructors wait for threads
    for generation in (1, 2):
        backend: Any = nccl_backend(PrefixStore(f"alone/{generation}", store), 0, 1)
        backends.append(backend)
        was_initialized = backend._is_initialized()
        builder = threading.Thread(target=backend.eager_connect_single_device, args=(rank.device,))
        builder.start()
        builder.join(WAIT_SECONDS)
        is_initialized = backend._is_initialized()
        tensor = torch.full((NUMEL,), 3.0, device=rank.device)
        backend.allreduce([tensor]).wait()
        torch.cuda.synchronize(rank.device)
        is_equal = bool((tensor == 3).all())
        aborter = threading.Thread(target=backend.abort)
        aborter.start()
        aborter.join(WAIT_SECONDS)
        observed.append([was_initialized, is_initialized, is_equal, aborter.is_alive()])
    return observed


# --- two GPUs ---


def all_reduce_every_dtype(rank: Rank) -> list[float]:
    """Sum floats and integers over all workers; return the smallest and largest sums."""
    process_group, sums = rank.process_group(1), list[float]()
    for dtype in (torch.float32, torch.int32, torch.float64, torch.bfloat16):
        tensor = torch.full((NUMEL,), rank.number + 1, dtype=dtype, device=rank.device)
        process_group.sum(tensor)
        sums += [float(tensor.min()), float(tensor.max())]
    return sums


def take_state_of_rank_0(rank: Rank) -> list[list[float]]:
    """Copy tensors of several types and sizes from rank 0 to all others in one batch."""
    process_group = rank.process_group(1)
    tensors = [
        torch.full(
            (size,), 7 + size % 5 if rank.number == 0 else 0, dtype=dtype, device=rank.device
        )
        for size, dtype in (
            (1, torch.float32),
            (NUMEL, torch.float32),
            (9, torch.int64),
            (16, torch.uint8),
        )
    ]
    others = range(1, rank.size)
    outgoing = [
        (peer, peer * len(tensors) + i, t) for peer in others for i, t in enumerate(tensors)
    ]
    incoming = [(0, rank.number * len(tensors) + i, t) for i, t in enumerate(tensors)]
    process_group.send_and_receive(*((outgoing, []) if rank.number == 0 else ([], incoming)))
    return [[float(tensor.min()), float(tensor.max())] for tensor in tensors]


def lose_a_silent_peer(rank: Rank) -> list[Any]:
    """Return what rank 0 observes of a sum in which rank 1 does not take part."""
    return _lose_peer(rank, lambda: rank.released.wait(WAIT_SECONDS))


def lose_a_killed_peer(rank: Rank) -> list[Any]:
    """Return what rank 0 observes of a sum before which rank 1 is killed."""
    return _lose_peer(rank, lambda: os.kill(os.getpid(), signal.SIGKILL))


def _lose_peer(rank: Rank, leave: Callable[[], object]) -> list[Any]:
    process_groups = list[AbortableGroup]()
    has_aborted = threading.Event()

    def abort_once() -> None:  # as the listening thread does on a message of the agent
        if not has_aborted.is_set():
            has_aborted.set()
            threading.Thread(target=process_groups[0].abort).start()

    process_groups.append(rank.process_group(1, abort_once))
    tensor = torch.ones(NUMEL, device=rank.device)
    process_groups[0].sum(tensor)
    observed: list[Any] = [float(tensor.min())]
    if rank.number == 1:
        leave()
        return observed
    try:
        process_groups[0].sum(torch.ones(NUMEL, device=rank.device))
        observed.append(FINISHED)
    except PeerLostError:
        observed.append(LOST)
    process_groups[0].close()
    # The GPU and the process still work, with another communicator.
    backend: Any = nccl_backend(PrefixStore("alone", rank.store()), 0, 1)
    backend.eager_connect_single_device(rank.device)
    later = torch.ones(NUMEL, device=rank.device)
    backend.allreduce([later]).wait()
    torch.cuda.synchronize(rank.device)
    return [*observed, has_aborted.is_set(), float(later.max())]
