"""Long waits in the collectives of a group, and the workers that they wait for.

gloo and NCCL do not report whose data is missing, and a slow worker cannot report that it is slow. So a worker that
waits for longer than a second records the number of the collective in the store of the group. After five seconds, or
later if such waits are usual, one of the waiting workers reads all records: a worker that does not wait in this
collective is late. A shorter wait costs no request.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch._C._distributed_c10d import Store

from everstep.elastic.transport.group import COLLECTIVE_SECONDS

RECORD_AFTER_SECONDS = 1.0
REPORT_AFTER_SECONDS = 5.0
"""Minimum wait that is reported: a lost peer is noticed earlier, and all waiting workers have recorded their waits."""


@dataclass(frozen=True)
class WaitRecord:
    """The record of a worker in the store.

    Attributes:
        collective: number of the last collective in which the worker waited for more than a second; 0 for none.
        node: name of its node.
    """

    collective: int
    node: str


@dataclass(frozen=True)
class Stall:
    """A collective that takes unusually long, as one of the waiting workers reports it.

    Attributes:
        began_at: Unix time at which this worker began to wait.
        seconds: time that it has waited.
        late_nodes: nodes of the workers that have not arrived, by rank; empty if all have.
        is_over: whether the wait has ended.
        is_lost: whether it has ended because the group was aborted or the collective failed.
    """

    began_at: float
    seconds: float
    late_nodes: Mapping[int, str]
    is_over: bool = False
    is_lost: bool = False

    def sentence(self) -> str:
        """Return a sentence for the log."""
        workers = ", ".join(
            f"node {node} (rank {rank})" for rank, node in sorted(self.late_nodes.items())
        )
        seconds = f"{self.seconds:.0f} s"
        if self.is_lost:
            return f"the group is aborted after a wait of {seconds} for {workers or 'the network'}"
        if self.is_over:
            return f"the wait for {workers or 'the network'} is over after {seconds}"
        limit = f"the group waits at most {COLLECTIVE_SECONDS:.0f} s"
        if not workers:
            return (
                f"all workers have been in a collective for {seconds}: the network is slow; {limit}"
            )
        return f"the others have waited {seconds} for {workers}; {limit}"


def late_nodes(records: Sequence[WaitRecord], collective: int) -> dict[int, str]:
    """Return the nodes of the workers that do not wait in a collective or a later one, by rank.

    Args:
        records: one record for each rank.
        collective: number of the collective.
    """
    return {
        rank: record.node for rank, record in enumerate(records) if record.collective < collective
    }


def report_after(usual_limit_seconds: float) -> float:
    """Return the time after which a wait is reported.

    Args:
        usual_limit_seconds: time after which a wait is unusually long for this group.
    """
    return max(REPORT_AFTER_SECONDS, usual_limit_seconds)


class StallObserver:
    """Observer of one worker's waits in the collectives of a group.

    It must be created before the group is built: then all workers have a record as soon as the group exists.

    Args:
        store: store of the group.
        rank: rank of this worker.
        world_size: number of workers.
        node: name of this worker's node.
        report: called in a thread when a stall is reported, and when it is over; by one worker of the group.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        node: str,
        report: Callable[[Stall], None],
    ) -> None:
        self._store, self._rank, self._world_size = store, rank, world_size
        self._node, self._report = node, report
        self._record(0)

    def observe(
        self, collective: int, waited_seconds: float, report_seconds: float
    ) -> Callable[[bool], None]:
        """Observe a wait in a thread, since the store may not respond; the returned function ends it.

        Args:
            collective: number of the collective, equal on all workers.
            waited_seconds: time that this worker has waited already.
            report_seconds: time after which the wait is reported.

        Returns:
            A function to call when the wait has ended, with True if the group was aborted or the
            collective failed.
        """
        wait = _Wait(time.time() - waited_seconds, time.monotonic() - waited_seconds)
        arguments = (collective, wait, report_seconds)
        threading.Thread(
            target=self._observe, args=arguments, name="everstep-stall", daemon=True
        ).start()
        return wait.end

    def _observe(self, collective: int, wait: "_Wait", report_seconds: float) -> None:
        stall = None
        with contextlib.suppress(RuntimeError):  # the store is gone, with its group
            self._record(collective)
            is_over = wait.wait_for_end(report_seconds - wait.seconds)
            if not is_over and self._claim_report(collective):
                stall = Stall(wait.began_at, wait.seconds, late_nodes(self._records(), collective))
        if stall:
            self._report(stall)
            wait.wait_for_end(None)
            self._report(replace(stall, seconds=wait.seconds, is_over=True, is_lost=wait.is_lost))

    def _claim_report(self, collective: int) -> bool:
        """Claim the report of a stall; return True if no other worker has claimed it."""
        return self._store.add(f"reports-{collective}", 1) == 1

    def _record(self, collective: int) -> None:
        self._store.set(f"waits-{self._rank}", json.dumps([collective, self._node]))

    def _records(self) -> list[WaitRecord]:
        keys = [f"waits-{rank}" for rank in range(self._world_size)]
        return [WaitRecord(*json.loads(record)) for record in self._store.multi_get(keys)]


class _Wait:
    """One wait of this worker.

    Args:
        began_at: Unix time of its beginning.
        began: time of its beginning by the monotonic clock.

    Attributes:
        is_lost: whether it has ended because the group was aborted or the collective failed.
    """

    def __init__(self, began_at: float, began: float) -> None:
        self.began_at, self._began, self.is_lost = began_at, began, False
        self._seconds: float | None = None
        self._ended = threading.Event()

    @property
    def seconds(self) -> float:
        """Seconds of the wait, up to now or to its end."""
        return time.monotonic() - self._began if self._seconds is None else self._seconds

    def wait_for_end(self, timeout_seconds: float | None) -> bool:
        """Block until the wait ends or the timeout passes; return True if the wait has ended."""
        return self._ended.wait(timeout_seconds)

    def end(self, is_lost: bool) -> None:  # noqa: FBT001 - the only argument
        """Record the end of the wait."""
        self._seconds, self.is_lost = self.seconds, is_lost
        self._ended.set()
