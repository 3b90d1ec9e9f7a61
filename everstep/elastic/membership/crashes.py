"""The rule that decides whether a crashed worker starts again, and who starts it. Pure.

A worker that was assigned to a group is started again without the node's other workers, which continue. It does not
matter how the worker ended: the kernel may kill it for lack of memory in the first step as well as in the thousandth.
If workers crash repeatedly without a new step, another start would fail, too: a step that the run had completed
before, and repeats because all of its state was lost, does not count.
"""

from collections.abc import Iterable
from enum import Enum, auto

MAX_CRASHES_WITHOUT_STEP = 3  # consecutive crashes without a new step before the node withdraws


class CrashAction(Enum):
    """The consequence of a crash."""

    RESTART_WORKER = auto()  # the node's other workers continue
    RESTART_ALL = auto()  # by torchrun: the worker was never in a group
    GIVE_UP = auto()  # another start would fail as well


class Crashes:
    """One node's workers by process ID: the progress of each, and their consecutive crashes.

    Workers of one node that crash in the same generation count as one crash.
    """

    def __init__(self) -> None:
        self._assigned_pids, self._proven_pids = set[int](), set[int]()
        self._newest_step = 0  # of all workers
        self._earlier_step = 0  # the newest one before this generation
        self._is_counted = False  # whether a crash in this generation was counted
        self._consecutive_crashes = 0

    def record_assignment(self, workers: Iterable[int]) -> None:
        """Record that workers are assigned to a group."""
        self._assigned_pids.update(workers)
        self._earlier_step, self._is_counted = self._newest_step, False

    def record_step(self, worker: int, step: int) -> None:
        """Record that a worker has completed a step; a new one proves that this node can train."""
        self._newest_step = max(self._newest_step, step)
        if step > self._earlier_step:
            self._proven_pids.add(worker)
            self._consecutive_crashes = 0

    def judge(self, worker: int) -> CrashAction:
        """Return the consequence of a crash; forget the worker, since its process ID may be reused."""
        was_assigned, has_proven = worker in self._assigned_pids, worker in self._proven_pids
        self._assigned_pids.discard(worker)
        self._proven_pids.discard(worker)
        if not was_assigned:
            return CrashAction.RESTART_ALL
        if not (has_proven or self._is_counted):
            self._consecutive_crashes += 1
            self._is_counted = True
        return (
            CrashAction.RESTART_WORKER
            if self._consecutive_crashes < MAX_CRASHES_WITHOUT_STEP
            else CrashAction.GIVE_UP
        )
