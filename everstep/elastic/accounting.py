"""Where a worker's seconds went: at every moment exactly one name has the clock.

A worker says what it begins; what it did before ends with that, so nothing is counted twice and
nothing is left out: the names' seconds add up to the wall clock. What turns out to have been in vain
is renamed: when a step is rolled back, its work becomes `redo`, since it is done again, and its
waiting in the exchange becomes `detect`, since it waited for somebody who was gone.
"""

import time
from collections.abc import Callable, Mapping
from enum import StrEnum


class Name(StrEnum):
    """What a second may be spent on."""

    START_UP = "start_up"  # from the process's start until it first asks to be in a group
    IDLE = "idle"  # waits to be in a group for the first time, or as a spare
    FORM = "form"  # from leaving one group until the next one stands
    COPY = "copy"  # compares, gives and takes state, or restores it
    DATA = "data"  # reads and augments samples
    COMPUTE = "compute"  # forward, backward, optimizer
    EXCHANGE = "exchange"  # sums with the others, the waiting for slower ones included
    CHECKPOINT = "checkpoint"  # holds training up for a snapshot or a write
    EVALUATION = "evaluation"
    DETECT = "detect"  # waited in an exchange that never came about
    REDO = "redo"  # worked on a step that has to be done again


class Accounting:
    """One worker's clock.

    Args:
        clock: seconds that only go forward.
        name: what is being done from now on.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, name: Name = Name.START_UP
    ) -> None:
        self._clock, self._name, self._since = clock, name, clock()
        self._spent = dict.fromkeys(Name, 0.0)
        self._before_step = dict(self._spent)

    def begin(self, name: Name) -> None:
        """From now on it is this."""
        now = self._clock()
        self._spent[self._name] += now - self._since
        self._name, self._since = name, now

    def begin_step(self) -> None:
        """A step begins: with its data."""
        self.begin(Name.DATA)
        self._before_step = dict(self._spent)

    def end_step(self) -> None:
        """The step that began last counts, whatever happens from here on."""
        self.begin(self._name)
        self._before_step = dict(self._spent)

    def void_step(self) -> None:
        """The step that has begun and not ended has come to nothing; the group has to form anew."""
        self.begin(Name.FORM)
        for name, became in (
            (Name.DATA, Name.REDO),
            (Name.COMPUTE, Name.REDO),
            (Name.EXCHANGE, Name.DETECT),
        ):
            in_vain = self._spent[name] - self._before_step[name]
            self._spent[name] -= in_vain
            self._spent[became] += in_vain
        self._before_step = dict(self._spent)

    def spent(self) -> Mapping[str, float]:
        """Seconds under each name since the beginning, up to this moment; they add up to the wall clock."""
        self.begin(self._name)
        return {name.value: round(seconds, 4) for name, seconds in self._spent.items() if seconds}
