"""A process group that can be left at any moment, also out of a collective that waits for a dead peer.

Used by `live_worker`, which builds one for each generation in the living process. It stands on
torch's backends themselves and not on `torch.distributed`'s default group: that one is global, so an
attempt to build it that is given up half-way could not be followed by another.

Why sockets are shut down: gloo has no abort. A collective whose peer is frozen, or whose machine is
gone without a word, waits for its time-out; but when a socket to any peer is closed under it, it
fails at once. NCCL has an abort of its own.
"""

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Backend, PrefixStore, ProcessGroupGloo, Store, TCPStore

from everstep.elastic.group import COLLECTIVE_SECONDS, PeerLostError, losses_named

ABORTED_SECONDS = 1.0  # a collective that was aborted has ended long before
STALL_SECONDS = 0.2  # a wait that is longer, and twice as long as usual, may be for a lost peer
STALLED_STILL_SECONDS = 0.1
FADING = 0.9  # of what was usual, with each collective
MEET_SECONDS = 30.0  # peers that were all alive a moment ago have met long before


@dataclass(frozen=True)
class Meeting:
    """Where and as what this worker meets the others of a generation."""

    generation: int
    host: str
    port: int
    rank: int
    world_size: int


class Link:
    """One generation's group, as one worker has it. Every wait ends with a `PeerLostError` after `abort`.

    Args:
        meeting: where, and as what.
        device: of the tensors.
        on_stall: called several times a second while a collective takes longer than usual.
    """

    def __init__(
        self,
        meeting: Meeting,
        device: torch.device,
        on_stall: Callable[[], None] = lambda: None,
    ) -> None:
        self.rank, self.world_size = meeting.rank, meeting.world_size
        self._device, self._meeting = device, meeting
        self._on_stall, self._usual_seconds = on_stall, 0.0
        self._aborted, self._met = threading.Event(), threading.Event()
        self._aborted_at = math.inf
        self._sockets: dict[int, str] = {}
        self._before: frozenset[str] = frozenset()
        self._backend: Any = None
        self._failure: RuntimeError | None = None
        self._changed = threading.Condition()
        self.store: Store | None = None

    def aborted_for(self, seconds: float) -> bool:
        """Whether this group has been no more for so long."""
        return time.monotonic() - self._aborted_at >= seconds

    def meet(self) -> None:
        """Build the group.

        In a thread, since the backends' own waiting for a peer that died on the way cannot be ended:
        an attempt that was aborted is left to its time-out.
        """
        if self._aborted.is_set():
            raise PeerLostError("the group was given up before it was built")
        self._before = frozenset(_sockets().values())
        threading.Thread(target=self._build, name="everstep-meet", daemon=True).start()
        with self._changed:
            done = self._changed.wait_for(
                lambda: self._met.is_set() or self._aborted.is_set(), MEET_SECONDS
            )
        if self._aborted.is_set():
            raise PeerLostError("the group was given up while it was built")
        if not done or self._failure:
            raise PeerLostError(f"the others could not be met: {self._failure or 'no answer'}")

    def abort(self) -> None:
        """Give the group up, from any thread: whoever waits in it is woken."""
        with self._changed:
            self._aborted_at = min(self._aborted_at, time.monotonic())
            self._aborted.set()
            self._changed.notify_all()
        for descriptor, name in (self._sockets or self._young_sockets()).items():
            _shut_down(descriptor, name)
        if self._device.type == "cuda" and self._backend is not None:
            self._backend.abort()

    def close(self) -> None:
        """Let go of the group.

        The backend's own end waits for its threads, for ever where an exchange in it does not end: so
        the last reference to it must be dropped by a thread that nobody waits for.
        """
        last = [self._backend]
        self._backend = None
        threading.Thread(target=last.clear, name="everstep-close", daemon=True).start()

    def sum(self, tensor: torch.Tensor) -> None:
        """Sum over all workers, in place."""
        self.begin_sum(tensor)()

    def begin_sum(self, tensor: torch.Tensor) -> Callable[[], None]:
        """Begin to sum over all workers, in place; the sum is there once the answer has been called."""
        works = self._begin(lambda: [self._backend.allreduce([tensor])])
        return lambda: self._wait(works)

    def gather(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        """Everybody's tensor, by rank; all of one shape."""
        mine = numbers.to(self._device)
        everybody = [torch.empty_like(mine) for _ in range(self.world_size)]
        self._wait(self._begin(lambda: [self._backend.allgather([everybody], [mine])]))
        return [tensor.cpu() for tensor in everybody]

    def pass_on(
        self,
        outgoing: Sequence[tuple[int, int, torch.Tensor]],
        incoming: Sequence[tuple[int, int, torch.Tensor]],
    ) -> None:
        """Send and take tensors, all at once; each with the other's rank and a number for the pair."""
        works = self._begin(
            lambda: [
                *(self._backend.send([tensor], rank, tag) for rank, tag, tensor in outgoing),
                *(self._backend.recv([tensor], rank, tag) for rank, tag, tensor in incoming),
            ]
        )
        self._wait(works)

    def agree(self, question: str, answer: str) -> str:
        """Rank 0's answer, for everybody."""
        if self.store is None:
            return answer
        with losses_named():
            if self.rank == 0:
                self.store.set(question, answer)
            return str(self.store.get(question).decode())

    def _begin(self, begin: Callable[[], list[Any]]) -> list[Any]:
        """What was begun; nothing where there is nobody else."""
        if self._aborted.is_set():
            raise PeerLostError("the group was given up")
        if self.world_size == 1:
            return []
        with losses_named():
            return begin()

    def _wait(self, works: list[Any]) -> None:
        if not works:
            return
        with losses_named():
            self._end_of(works)
        if self._aborted.is_set():  # NCCL's kernels end without a word when they are aborted
            raise PeerLostError("the group was given up in the exchange")

    def _end_of(self, works: list[Any]) -> None:
        """Until these collectives have ended, or a moment after the group was given up.

        In a thread, as for `meet`: gloo forgets about once in a hundred times to end a collective
        whose peers closed their connections while this process was frozen.
        """
        ended, failures = threading.Event(), list[Exception]()

        def wait() -> None:
            try:
                for work in works:
                    work.wait()
                if self._device.type == "cuda":
                    torch.cuda.synchronize(self._device)
            except Exception as error:
                failures.append(error)
            with self._changed:
                ended.set()
                self._changed.notify_all()

        threading.Thread(target=wait, name="everstep-exchange", daemon=True).start()
        self._wait_with_word(ended)
        with self._changed:
            self._changed.wait_for(ended.is_set, ABORTED_SECONDS)
        if not ended.is_set():
            raise PeerLostError("the group was given up in an exchange that does not end")
        if failures:
            raise failures[0]

    def _wait_with_word(self, ended: threading.Event) -> None:
        """Until something has ended or the group was given up, with a word to `on_stall` where that takes long."""
        began = time.monotonic()
        patience = max(STALL_SECONDS, 2 * self._usual_seconds)
        while not self._is_over(ended, patience):
            self._on_stall()
            patience = STALLED_STILL_SECONDS
        self._usual_seconds = max(time.monotonic() - began, FADING * self._usual_seconds)

    def _is_over(self, ended: threading.Event, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: ended.is_set() or self._aborted.is_set(), seconds)

    def _build(self) -> None:
        try:
            self._connect()
        except RuntimeError as error:
            self._failure = error
        with self._changed:
            self._sockets = self._young_sockets()
            self._met.set()
            self._changed.notify_all()
        if self._aborted.is_set():
            self.close()

    def _connect(self) -> None:
        meeting = self._meeting
        server = TCPStore(
            meeting.host,
            meeting.port,
            is_master=False,
            wait_for_workers=False,
            use_libuv=False,  # Debian's torch is built without it
            timeout=timedelta(seconds=MEET_SECONDS),
        )
        store = PrefixStore(f"live/{meeting.generation}", server)
        self._backend = self._create(PrefixStore("group", store))
        server.set_timeout(timedelta(seconds=COLLECTIVE_SECONDS))
        self.store = store

    def _create(self, store: Store) -> Backend | None:
        rank, size = self._meeting.rank, self._meeting.world_size
        if size == 1:
            return None
        if self._device.type != "cuda":
            return ProcessGroupGloo(store, rank, size, timedelta(seconds=COLLECTIVE_SECONDS))
        from torch._C._distributed_c10d import ProcessGroupNCCL

        options = ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=COLLECTIVE_SECONDS)
        return ProcessGroupNCCL(store, rank, size, options)

    def _young_sockets(self) -> dict[int, str]:
        """TCP sockets that this process has opened since the meeting began."""
        return {fd: name for fd, name in _sockets().items() if name not in self._before}


def _sockets() -> dict[int, str]:
    """This process's sockets: descriptor and the kernel's own name, which no later socket has again."""
    found = {}
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - called while collectives wait
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115 - the same
            if name.startswith("socket:"):
                found[int(entry)] = name
    return found


def _shut_down(descriptor: int, name: str) -> None:
    """Shut one connected TCP socket down, if its descriptor still means that socket."""
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/self/fd/{descriptor}") != name:  # noqa: PTH115 - as above
            return
        with socket.socket(fileno=os.dup(descriptor)) as connection:
            if connection.family in (socket.AF_INET, socket.AF_INET6):
                connection.getpeername()  # a listening one has none and stays
                connection.shutdown(socket.SHUT_RDWR)
