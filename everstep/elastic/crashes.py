"""Whether a worker that crashed is started again, and by whom: a rule.

Pure. A worker that has been called into a group starts again alone, so that its neighbours on the
node live on, however it ended: a machine short of memory kills in the first step as well as in the
thousandth. What crashes again and again without one step cannot be helped by another start.
"""

from collections.abc import Iterable
from enum import Enum, auto

CRASHES = 3  # in a row without a step, before the run is given up


class Verdict(Enum):
    """What follows from a crash."""

    ALONE = auto()  # the worker starts again by itself
    WITH_ALL = auto()  # it never came so far as to be called: torchrun starts the node anew
    GIVE_UP = auto()  # another start would be as the last


class Crashes:
    """One node's workers, by process id: how far each came, and how often they crashed in a row."""

    def __init__(self) -> None:
        self._called, self._proven = set[int](), set[int]()
        self._in_a_row = 0

    def called(self, workers: Iterable[int]) -> None:
        """They are called into a group."""
        self._called.update(workers)

    def proven(self, worker: int) -> None:
        """It has taken a step: whatever crashed here before, this node can train."""
        self._proven.add(worker)
        self._in_a_row = 0

    def judge(self, worker: int) -> Verdict:
        """It has crashed: what now. Forgets it, since its process id may be another's soon."""
        called, proven = worker in self._called, worker in self._proven
        self._called.discard(worker)
        self._proven.discard(worker)
        if not called:
            return Verdict.WITH_ALL
        if not proven:
            self._in_a_row += 1
        return Verdict.ALONE if self._in_a_row < CRASHES else Verdict.GIVE_UP
