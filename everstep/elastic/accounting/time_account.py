"""Account of a worker's time: exactly one activity at every moment.

The worker reports each activity as it begins, which ends the previous activity. So no second is counted
twice or left out: the activities' seconds add up to the wall-clock time. Time that turns out to be wasted
is reassigned: when the group is lost during a step, the step's all-reduce time becomes `detect`, since the worker
waited for a lost peer. The step's data and compute time becomes `redo`, unless the gradients are kept.

The training loop's thread reports activities; other threads may read the totals at any time.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from everstep.catalog.names import AGENT_VARIABLE

PROCESS_STATUS = Path("/proc/self/stat")


class Activity(StrEnum):
    """An activity of a worker."""

    START_UP = "start_up"  # from the process's start until it is first ready to join a group
    IDLE = "idle"  # waiting to be in a group for the first time, or as a spare
    FORM = "form"  # from leaving one group until the next one is connected
    COPY = "copy"  # comparing, sending and receiving state, or restoring it
    DATA = "data"  # reading and augmenting samples
    COMPUTE = "compute"  # forward, backward, optimizer
    EXCHANGE = "exchange"  # all-reduce, including the wait for slower workers
    CHECKPOINT = "checkpoint"  # training paused for a snapshot
    EVALUATION = "evaluation"
    DETECT = "detect"  # waiting in an all-reduce that never completed
    REDO = "redo"  # work on a step that must be done again


_STEP_ACTIVITIES = (Activity.DATA, Activity.COMPUTE, Activity.EXCHANGE)
_ACTIVITIES_BEFORE_STEP = (Activity.START_UP, Activity.IDLE, Activity.FORM, Activity.COPY)

REPORT_INTERVAL_SECONDS = 5.0
"""Minimum time between two reports after steps: a killed worker's totals may lack this time and the step in flight."""


class TimeAccount:
    """One worker's time account.

    Args:
        clock: monotonic clock in seconds.
        activity: the first activity.
        age_seconds: time that the first activity has taken before the account is created.

    Attributes:
        last_recovery: seconds from the end or the loss of a group until the next group's first step
            began, including the wait for the lost peer. None before the first recovery.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        activity: Activity = Activity.START_UP,
        age_seconds: float = 0.0,
    ) -> None:
        self._clock, self._activity, self._began_at = clock, activity, clock() - age_seconds
        self._seconds = dict.fromkeys(Activity, 0.0)
        self._seconds_before_step = dict(self._seconds)
        self._lock = threading.Lock()
        self._report: Callable[[], None] = lambda: None
        self._reported_at = self._began_at
        self._is_fixed = False
        self._broke_at: float | None = None
        self.last_recovery: float | None = None

    @classmethod
    def of_process(cls) -> "TimeAccount":
        """Return the account of this process: from its start if an agent started it, to train and nothing else."""
        return cls(age_seconds=process_age() if AGENT_VARIABLE in os.environ else 0.0)

    def on_report(self, report: Callable[[], None]) -> None:
        """Register a function to call after a step, at most once every `REPORT_INTERVAL_SECONDS`."""
        self._report = report

    @contextmanager
    def attribute_all_to(self, activity: Activity) -> Iterator[None]:
        """Attribute all time in the block to one activity: the forward pass of a warm-up is start-up."""
        self.begin(activity)
        self._is_fixed = True
        try:
            yield
        finally:
            self._is_fixed = False

    def begin(self, activity: Activity) -> None:
        """Attribute the time from now on to this activity."""
        if self._is_fixed:
            return
        now = self._clock()
        with self._lock:
            self._seconds[self._activity] += now - self._began_at
            recovery_begins = (
                activity is Activity.FORM and self._activity not in _ACTIVITIES_BEFORE_STEP
            )
            self._activity, self._began_at = activity, now
        if recovery_begins and self._broke_at is None:
            self._broke_at = now

    def begin_step(self) -> None:
        """Start a step, first with the activity `DATA`."""
        self.begin(Activity.DATA)
        self._seconds_before_step = dict(self._seconds)
        if self._broke_at is not None:
            self.last_recovery, self._broke_at = self._began_at - self._broke_at, None

    def end_step(self) -> None:
        """Count the current step as done; a later failure does not reassign its time."""
        self.begin(self._activity)
        self._seconds_before_step = dict(self._seconds)
        if self._began_at - self._reported_at >= REPORT_INTERVAL_SECONDS:
            self._reported_at = self._began_at
            self._report()

    def break_step(self, *, gradients_valid: bool) -> None:
        """Reassign the time of an unfinished step whose group was lost.

        Args:
            gradients_valid: whether the gradients of the step stay valid.
        """
        self.begin(Activity.FORM)
        with self._lock:
            waited = self._reassign(Activity.EXCHANGE, Activity.DETECT)
            if not gradients_valid:
                self._reassign(Activity.DATA, Activity.REDO)
                self._reassign(Activity.COMPUTE, Activity.REDO)
        if self._broke_at == self._began_at:  # the group broke when the wait began
            self._broke_at -= waited
        self._seconds_before_step = dict(self._seconds)

    def _reassign(self, activity: Activity, target: Activity) -> float:
        seconds = self._seconds[activity] - self._seconds_before_step[activity]
        self._seconds[activity] -= seconds
        self._seconds[target] += seconds
        return seconds

    def final_seconds(self) -> Mapping[str, float]:
        """Return the seconds of all activities without the step in flight: they never decrease.

        The time of the step in flight may still be reassigned.
        """
        completed_steps = {
            activity.value: self._seconds_before_step[activity] for activity in _STEP_ACTIVITIES
        }
        seconds = {**self.total_seconds(), **completed_steps}
        return {activity.value: round(seconds.get(activity.value, 0.0), 4) for activity in Activity}

    def total_seconds(self) -> Mapping[str, float]:
        """Return seconds by activity up to this moment; they add up to the wall-clock time."""
        with self._lock:
            totals = dict(self._seconds)
            totals[self._activity] += self._clock() - self._began_at
        return {
            activity.value: round(seconds, 4) for activity, seconds in totals.items() if seconds
        }


def process_age() -> float:
    """Return the seconds since this process was started or forked; 0 where the kernel does not show it."""
    try:
        fields = PROCESS_STATUS.read_text().rpartition(")")[2].split()
        started_at = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # field 22 in proc(5): after boot
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_at)
