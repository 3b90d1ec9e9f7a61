"""A process group that can be aborted at any moment, even in a collective that waits for a dead peer.

`live_worker` builds a group for each generation in the same process. This module uses torch's backends directly and
not `torch.distributed`'s default group: the default group is global, so after an aborted attempt to build it, another
attempt would be impossible.

Why sockets are shut down: gloo has no abort. A collective whose peer is frozen, or whose machine
vanished without notice, waits for its timeout; but it fails immediately when a socket to any peer is
shut down (`sockets`). NCCL has its own abort.
"""

import contextlib
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, PrefixStore, ProcessGroupGloo, Store, TCPStore

from everstep.elastic.transport.group import (
    COLLECTIVE_SECONDS,
    PeerLostError,
    convert_peer_losses,
    node_name,
)
from everstep.elastic.transport.sockets import group_sockets, shut_down, socket_names
from everstep.elastic.transport.stalls import (
    RECORD_AFTER_SECONDS,
    Stall,
    StallObserver,
    report_after,
)

ABORT_TIMEOUT_SECONDS = 1.0  # an aborted collective has ended long before
STALL_AFTER_SECONDS = 0.2
"""A wait that is longer than this, and longer than twice the usual wait, may be for a lost peer."""
STALL_REPEAT_SECONDS = 0.1
USUAL_DECAY = 0.9  # decay of the usual wait per collective
CONNECT_TIMEOUT_SECONDS = 30.0  # peers that were alive a moment ago have connected long before


@dataclass
class UsualWait:
    """The usual duration of a group's collectives.

    Attributes:
        seconds: the longest of the last waits; older waits count less.
    """

    seconds: float = 0.0

    @property
    def limit_seconds(self) -> float:
        """Time after which a wait is unusually long."""
        return max(STALL_AFTER_SECONDS, 2 * self.seconds)

    def observe(self, seconds: float) -> None:
        """Record a wait that has ended."""
        self.seconds = max(seconds, USUAL_DECAY * self.seconds)


@dataclass(frozen=True)
class GroupAddress:
    """Address and rank with which this worker joins a generation's group.

    Attributes:
        generation: number of the generation.
        host: host of the generation's store.
        port: port of the generation's store.
        rank: rank in the group.
        world_size: number of workers in the group.
        part: name of a subgroup of the generation's workers; empty for the group of all.
    """

    generation: int
    host: str
    port: int
    rank: int
    world_size: int
    part: str = ""


class AbortableGroup:
    """This worker's handle to one generation's process group. After `abort` every wait ends with a `PeerLostError`.

    Args:
        address: address of the group, with this worker's rank.
        device: device of the tensors.
        on_stall: called several times a second while a collective takes longer than usual.
        report: called in a thread with a `Stall` once a wait has lasted several seconds, and again when the wait is
            over; None to report no waits.
    """

    def __init__(
        self,
        address: GroupAddress,
        device: torch.device,
        on_stall: Callable[[], None] = lambda: None,
        report: Callable[[Stall], None] | None = None,
    ) -> None:
        self.rank, self.world_size = address.rank, address.world_size
        self._device, self._address = device, address
        self._on_stall, self._usual_wait = on_stall, UsualWait()
        self._report = report
        self._observer: StallObserver | None = None
        # All workers begin the same collectives in the same order.
        self._collectives = itertools.count(1)
        self._aborted, self._built = threading.Event(), threading.Event()
        self._aborted_at = math.inf
        self._sockets: dict[int, str] = {}
        self._earlier_sockets: frozenset[str] = frozenset()
        self._backend: Any = None
        self._failure: RuntimeError | None = None
        self._changed = threading.Condition()
        self.store: Store | None = None

    def aborted_for(self, seconds: float) -> bool:
        """Return True if this group was aborted at least `seconds` ago."""
        return time.monotonic() - self._aborted_at >= seconds

    def build(self) -> None:
        """Build the group.

        The group is built in a thread, since the backends' own wait for a peer that has died cannot be
        interrupted: an aborted attempt is left to its timeout.

        Raises:
            PeerLostError: the group was aborted, or could not be built in time.
        """
        if self._aborted.is_set():
            raise PeerLostError("the group was aborted before it was built")
        self._earlier_sockets = frozenset(socket_names().values())
        threading.Thread(target=self._build, name="everstep-build", daemon=True).start()
        with self._changed:
            is_over = self._changed.wait_for(
                lambda: self._built.is_set() or self._aborted.is_set(), CONNECT_TIMEOUT_SECONDS
            )
        if self._aborted.is_set():
            raise PeerLostError("the group was aborted while it was built")
        if not is_over or self._failure:
            raise PeerLostError(f"the group could not be built: {self._failure or 'no response'}")

    def abort(self) -> None:
        """Abort the group, from any thread: every waiting thread is woken."""
        with self._changed:
            self._aborted_at = min(self._aborted_at, time.monotonic())
            self._aborted.set()
            self._changed.notify_all()
        for descriptor, name in (self._sockets or self._connections()).items():
            shut_down(descriptor, name)
        if self._device.type == "cuda":
            backend = self._backend  # another thread may call `close` at any moment
            if backend is not None:
                backend.abort()

    def close(self) -> None:
        """Release the group.

        The backend's destructor waits for its threads, endlessly if one of its collectives does not end. So
        the last reference must be dropped by a thread that no other thread waits for.
        """
        references = [self._backend]
        self._backend = None
        threading.Thread(target=references.clear, name="everstep-close", daemon=True).start()

    def sum(self, tensor: torch.Tensor) -> None:
        """Sum over all workers, in place."""
        self.begin_all_reduce(tensor)()

    def begin_all_reduce(self, tensor: torch.Tensor) -> Callable[[], None]:
        """Start a sum over all workers, in place; the returned function waits for the end."""
        works = self._begin(lambda: [self._backend.allreduce([tensor])])
        collective = next(self._collectives)
        return lambda: self._wait(works, collective)

    def run(self, begin: Callable[[Any], Any]) -> None:
        """Run a collective of torch's backend, which `begin` starts; do nothing in a group of one worker."""
        self._wait(self._begin(lambda: [begin(self._backend)]), next(self._collectives))

    def all_gather(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensors of all ranks, in rank order, on the CPU; all have the same shape."""
        own_numbers = numbers.to(self._device)
        results = [torch.empty_like(own_numbers) for _ in range(self.world_size)]
        works = self._begin(lambda: [self._backend.allgather([results], [own_numbers])])
        self._wait(works, next(self._collectives))
        if self.world_size == 1:  # no collective ran
            results = [own_numbers]
        return [tensor.cpu() for tensor in results]

    def send_and_receive(
        self,
        outgoing: Sequence[tuple[int, int, torch.Tensor]],
        incoming: Sequence[tuple[int, int, torch.Tensor]],
    ) -> None:
        """Send and receive tensors, all at the same time; each with the other rank and a tag for the pair."""

        def begin() -> list[Any]:
            with self._batch():
                return [
                    *(self._backend.send([tensor], rank, tag) for rank, tag, tensor in outgoing),
                    *(self._backend.recv([tensor], rank, tag) for rank, tag, tensor in incoming),
                ]

        self._wait(self._begin(begin))

    @contextlib.contextmanager
    def _batch(self) -> Iterator[None]:
        """Start all sends and receives inside as one batch.

        NCCL would execute them one after the other on the group's communicator, and two ranks that both send first
        could wait for each other. gloo needs no batch.
        """
        if self._device.type != "cuda":
            yield
            return
        self._backend._group_start()
        try:
            yield
        finally:
            self._backend._group_end()

    def _begin(self, begin: Callable[[], list[Any]]) -> list[Any]:
        """Start collectives and return them; return none in a group of one worker."""
        if self._aborted.is_set():
            raise PeerLostError("the group was aborted")
        if self.world_size == 1:
            return []
        with convert_peer_losses():
            return begin()

    def _wait(self, works: list[Any], collective: int = 0) -> None:
        """Wait for the end of collectives.

        Args:
            works: the collectives.
            collective: number of the collective of all workers; 0 for a transfer between some of them.
        """
        if not works:
            return
        with convert_peer_losses():
            self._wait_until_ended(works, collective)
        if self._aborted.is_set():  # NCCL's kernels end without an error when they are aborted
            raise PeerLostError("the group was aborted during the transfer")

    def _wait_until_ended(self, works: list[Any], collective: int) -> None:
        """Wait until these collectives have ended, or shortly after the group was aborted.

        The wait is in a thread, as in `build`: about once in a hundred times gloo fails to end a collective whose peers
        closed their connections while this process was frozen.
        """
        finished, failures = threading.Event(), list[Exception]()

        def wait_for_works() -> None:
            try:
                for work in works:
                    work.wait()
                if self._device.type == "cuda":
                    torch.cuda.synchronize(self._device)
            except Exception as error:
                failures.append(error)
            with self._changed:
                finished.set()
                self._changed.notify_all()

        threading.Thread(target=wait_for_works, name="everstep-exchange", daemon=True).start()
        self._wait_reporting_stalls(finished, failures, collective)
        with self._changed:
            self._changed.wait_for(finished.is_set, ABORT_TIMEOUT_SECONDS)
        if not finished.is_set():
            raise PeerLostError("the group was aborted in a transfer that does not end")
        if failures:
            raise failures[0]

    def _wait_reporting_stalls(
        self, finished: threading.Event, failures: Sequence[Exception], collective: int
    ) -> None:
        """Wait until `finished` or the abort; call `on_stall` repeatedly while that takes unusually long."""
        started_at = time.monotonic()
        limit_seconds = self._usual_wait.limit_seconds
        interval_seconds = min(limit_seconds, RECORD_AFTER_SECONDS)
        end_observation: Callable[[bool], None] | None = None
        while not self._is_over(finished, interval_seconds):
            interval_seconds = STALL_REPEAT_SECONDS
            waited_seconds = time.monotonic() - started_at
            if waited_seconds >= limit_seconds:
                self._on_stall()
            is_long = waited_seconds >= RECORD_AFTER_SECONDS
            if is_long and end_observation is None and self._observer and collective:
                end_observation = self._observer.observe(
                    collective, waited_seconds, report_after(limit_seconds)
                )
        if end_observation:
            end_observation(not finished.is_set() or bool(failures))
        self._usual_wait.observe(time.monotonic() - started_at)

    def _is_over(self, finished: threading.Event, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: finished.is_set() or self._aborted.is_set(), seconds
            )

    def _build(self) -> None:
        try:
            self._connect()
        except RuntimeError as error:
            self._failure = error
        with self._changed:
            self._sockets = self._connections()
            self._built.set()
            self._changed.notify_all()
        if self._aborted.is_set():
            self.close()

    def _connect(self) -> None:
        address = self._address
        server = TCPStore(
            address.host,
            address.port,
            is_master=False,
            wait_for_workers=False,
            use_libuv=False,  # Debian's torch is built without it
            timeout=timedelta(seconds=CONNECT_TIMEOUT_SECONDS),
        )
        # The abort may have come before there was a connection to shut down.
        if self._aborted.is_set():
            return
        store = PrefixStore(f"live/{address.generation}{address.part}", server)
        if self._report and self.world_size > 1:
            self._observer = StallObserver(
                PrefixStore("stalls", store),
                *(self.rank, self.world_size, node_name()),
                self._report,
            )
        self._backend = self._create(PrefixStore("group", store))
        if self._backend is not None and self._device.type == "cuda":
            # Here and not in the first collective: this thread may wait for a peer that has died.
            self._backend.eager_connect_single_device(self._device)
        server.set_timeout(timedelta(seconds=COLLECTIVE_SECONDS))
        self.store = store

    def _create(self, store: Store) -> Backend | None:
        rank, size = self._address.rank, self._address.world_size
        if size == 1:
            return None
        if self._device.type != "cuda":
            return ProcessGroupGloo(store, rank, size, timedelta(seconds=COLLECTIVE_SECONDS))
        return nccl_backend(store, rank, size)

    def _connections(self) -> dict[int, str]:
        """Return the connections of this group, by descriptor."""
        return group_sockets(self._earlier_sockets, (self._address.host, self._address.port))


def nccl_backend(store: Store, rank: int, size: int) -> Backend:
    """Return torch's backend for GPUs, whose communicator is not built yet."""
    # Imported only here: torch without CUDA does not have it.
    from torch._C._distributed_c10d import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=COLLECTIVE_SECONDS)
    return ProcessGroupNCCL(store, rank, size, options)
