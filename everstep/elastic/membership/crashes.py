"""The rule that decides whether a crashed worker starts again, and who starts it.

Pure. A worker that was assigned to a group starts again alone, however it ended, so that the other
workers of the node continue: the kernel of a machine without free memory may kill it in the first step as
well as in the thousandth. If a worker crashes repeatedly without one step, another start would fail too.
"""

from collections.abc import Iterable
from enum import Enum, auto

CRASHES = 3  # consecutive crashes without a step before the run is given up


class Verdict(Enum):
    """The consequence of a crash."""

    ALONE = auto()  # only this worker starts again
    WITH_ALL = auto()  # it was never in a group: torchrun starts all workers of the node again
    GIVE_UP = auto()  # another start would fail as well


class Crashes:
    """One node's workers by process ID: the progress of each, and their consecutive crashes."""

    def __init__(self) -> None:
        self._assigned, self._proven = set[int](), set[int]()
        self._consecutive = 0

    def assigned(self, workers: Iterable[int]) -> None:
        """Record that workers are assigned to a group."""
        self._assigned.update(workers)

    def proven(self, worker: int) -> None:
        """Record that a worker has taken a step: this node can train, whatever crashed before."""
        self._proven.add(worker)
        self._consecutive = 0

    def judge(self, worker: int) -> Verdict:
        """Return the consequence of a crash; forget the worker, since its process ID may be reused."""
        assigned, proven = worker in self._assigned, worker in self._proven
        self._assigned.discard(worker)
        self._proven.discard(worker)
        if not assigned:
            return Verdict.WITH_ALL
        if not proven:
            self._consecutive += 1
        return Verdict.ALONE if self._consecutive < CRASHES else Verdict.GIVE_UP
