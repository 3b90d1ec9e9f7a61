"""Where a worker's seconds went: at every moment exactly one name has the clock.

A worker says what it begins; what it did before ends with that, so nothing is counted twice and
nothing is left out: the names' seconds add up to the wall clock. What turns out to have been in vain
is renamed: when a step's group is lost, its waiting in the exchange becomes `detect`, since it waited
for somebody who was gone, and its work, where it cannot be kept, `redo`, since it is done again.

The training loop's thread says what begins; others may ask at any time what was spent.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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


_OF_A_STEP = (Name.DATA, Name.COMPUTE, Name.EXCHANGE)
_BEFORE_A_STEP = (Name.START_UP, Name.IDLE, Name.FORM, Name.COPY)

WORD_SECONDS = 5.0
"""How old the last written word of a worker's seconds may be: what a killed one fails to tell."""


class Accounting:
    """One worker's clock.

    Args:
        clock: seconds that only go forward.
        name: what is being done from now on.

    Attributes:
        last_recovery: seconds from when a group was given up, or broke, until the first step in the next
            one began; what was waited for the lost is part of it. None before the first time.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, name: Name = Name.START_UP
    ) -> None:
        self._clock, self._name, self._since = clock, name, clock()
        self._spent = dict.fromkeys(Name, 0.0)
        self._before_step = dict(self._spent)
        self._lock = threading.Lock()
        self._write: Callable[[], None] = lambda: None
        self._written = self._since
        self._held = False
        self._broke_at: float | None = None
        self.last_recovery: float | None = None

    def tell(self, write: Callable[[], None]) -> None:
        """From now on call `write` after a step, now and then, so that a killed worker has said almost all."""
        self._write = write

    @contextmanager
    def all_as(self, name: Name) -> Iterator[None]:
        """Whatever begins inside, its seconds have this one name: a warm-up's forward pass is start-up."""
        self.begin(name)
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def begin(self, name: Name) -> None:
        """From now on it is this."""
        if self._held:
            return
        now = self._clock()
        with self._lock:
            self._spent[self._name] += now - self._since
            forms = name is Name.FORM and self._name not in _BEFORE_A_STEP
            self._name, self._since = name, now
        if forms and self._broke_at is None:
            self._broke_at = now

    def begin_step(self) -> None:
        """A step begins: with its data."""
        self.begin(Name.DATA)
        self._before_step = dict(self._spent)
        if self._broke_at is not None:
            self.last_recovery, self._broke_at = self._since - self._broke_at, None

    def end_step(self) -> None:
        """The step that began last counts, whatever happens from here on."""
        self.begin(self._name)
        self._before_step = dict(self._spent)
        if self._since - self._written >= WORD_SECONDS:
            self._written = self._since
            self._write()

    def break_step(self, *, kept: bool) -> None:
        """The step that has begun and not ended has lost its group, which has to form anew.

        Args:
            kept: whether what was computed of it counts all the same.
        """
        self.begin(Name.FORM)
        with self._lock:
            waited = self._rename(Name.EXCHANGE, Name.DETECT)
            if not kept:
                self._rename(Name.DATA, Name.REDO)
                self._rename(Name.COMPUTE, Name.REDO)
        if self._broke_at == self._since:  # known only now: it broke when the waiting began
            self._broke_at -= waited
        self._before_step = dict(self._spent)

    def _rename(self, name: Name, became: Name) -> float:
        in_vain = self._spent[name] - self._before_step[name]
        self._spent[name] -= in_vain
        self._spent[became] += in_vain
        return in_vain

    def settled(self) -> Mapping[str, float]:
        """As `spent`, all names, without the step in flight, which may yet be renamed: nothing ever falls."""
        before = {name.value: self._before_step[name] for name in _OF_A_STEP}
        found = {**self.spent(), **before}
        return {name.value: round(found.get(name.value, 0.0), 4) for name in Name}

    def spent(self) -> Mapping[str, float]:
        """Seconds under each name since the beginning, up to this moment; they add up to the wall clock."""
        with self._lock:
            now = {**self._spent, self._name: self._spent[self._name] + self._clock() - self._since}
        return {name.value: round(seconds, 4) for name, seconds in now.items() if seconds}
