"""The state of every node over time, from the journals and the machines' events.

Pure functions: `node_timelines` returns each node's states as segments without gaps, `time_cells` maps them to
a row of characters. The screens only add color; the states are defined here.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from everstep.cli.report.run_record import ABSENCES, ARRIVALS, MachineEvent, RunRecord


class NodeState(StrEnum):
    """State of a node with regard to the training."""

    WAITING = "waiting"
    """No worker has started there yet."""
    REGROUPING = "regrouping"
    """A worker is present or starting, and the group is forming again."""
    TRAINING = "training"
    """Its worker takes part in steps."""
    GONE = "gone"
    """Absent after an event of `ABSENCES` or its worker's departure, or not in the group that trains or trains next."""


_BY_SEVERITY = (
    NodeState.GONE,
    NodeState.REGROUPING,
    NodeState.TRAINING,
    NodeState.WAITING,
)
"""The first of these states is shown if a cell has several states, so that short outages stay visible."""


@dataclass(frozen=True)
class Segment:
    """A node's state from `start` to `end`, in Unix seconds."""

    start: float
    end: float
    state: NodeState


@dataclass(frozen=True)
class NodeTimeline:
    """The states of one node over time."""

    node: str
    segments: tuple[Segment, ...]


def span(run: RunRecord, now: float) -> tuple[float, float]:
    """Return start and end of the timeline: from the first start to the end or now."""
    if not run.starts:
        return (now, now)
    start = run.starts[0].at
    end = run.finished.at if run.finished else max(now, run.entries[-1].at)
    return (start, max(start, end))


def node_timelines(run: RunRecord, now: float) -> tuple[NodeTimeline, ...]:
    """Return one timeline for each node, sorted by name; the segments of each cover the whole span."""
    start, end = span(run, now)
    if end <= start:
        return ()
    stalled_at = stalled_since(run)
    return tuple(
        NodeTimeline(node, _segments(_NodeStates(run, node, stalled_at), start, end))
        for node in run.nodes
    )


def _segments(states: "_NodeStates", start: float, end: float) -> tuple[Segment, ...]:
    boundaries = sorted(
        {start, end, *(time for time in states.change_times() if start < time < end)}
    )
    segments: list[Segment] = []
    for begin, next_begin in pairwise(boundaries):
        state = states.state_at(begin)
        if segments and segments[-1].state is state:
            segments[-1] = Segment(segments[-1].start, next_begin, state)
        else:
            segments.append(Segment(begin, next_begin, state))
    return tuple(segments)


def _next_step_time(run: RunRecord, time: float) -> float:
    """Return the time of the first step after a time, in Unix seconds; infinity if there is none."""
    step = run.step_after(time)
    return step.at if step else float("inf")


def stalled_since(run: RunRecord) -> float | None:
    """Return the Unix time from which the survivors wait for a new group; None if they do not wait."""
    if run.finished or not run.steps:
        return None
    last = run.steps[-1]
    forming_times = [
        entry.at
        for entry in run.entries
        if entry.kind in ("start", "generation") and entry.number("generation") > last.generation
    ]
    loss_times = [event.at for event in run.training_events if _awaits_new_group(run, event)]
    starts = [max(time, last.at) for time in (*forming_times, *loss_times)]
    return min(starts, default=None)


def _awaits_new_group(run: RunRecord, event: MachineEvent) -> bool:
    """Return True if an event caused the loss of a worker and no newer group has completed a step since."""
    if event.kind not in ("drain", "vanish", "remove"):
        return False
    previous_step = run.step_before(event.at)
    is_newest = previous_step is None or previous_step.generation == run.steps[-1].generation
    return is_newest and run.worker_on(event.node, event.at) is not None


class _NodeStates:
    """The states of one node by time, with sorted lists for the lookup."""

    def __init__(self, run: RunRecord, node: str, stalled_at: float | None) -> None:
        self._events = run.events_on(node)
        self._event_times = [event.at for event in self._events]
        self._starts = run.starts_on(node)
        self._first_steps = [_next_step_time(run, time) for time in self._starts]
        self._pauses = [(last.at, first.at) for last, first in run.pauses]
        self._step_times = run.step_times
        self._generations = [step.generation for step in run.steps]
        self._generations_without_node = {
            generation
            for generation in set(self._generations)
            if (group := run.members(generation)) and node not in group.values()
        }
        self._stalled_at = stalled_at
        self._departed_at = run.departed_at(node)

    def change_times(self) -> set[float]:
        """Return all times at which the node's state may change."""
        pauses = (time for pause in self._pauses for time in pause)
        ends = (time for time in (self._stalled_at, self._departed_at) if time is not None)
        return {*self._event_times, *self._starts, *self._first_steps, *pauses, *ends}

    def state_at(self, time: float) -> NodeState:
        """Return the state at a time; it lasts until the next possible change."""
        event = self._last_event(time)
        if event is not None and event.kind in ABSENCES:
            return NodeState.GONE
        start = bisect_right(self._starts, time) - 1
        if event is not None and event.kind in ARRIVALS and self._awaits_worker_start(event, start):
            return NodeState.REGROUPING
        if self._departed_at is not None and time >= self._departed_at:
            return NodeState.GONE
        if start < 0:
            return NodeState.WAITING
        if time < self._first_steps[start] and not self._is_survivor(start, event, time):
            return NodeState.REGROUPING
        if self._in_pause(time):
            return NodeState.GONE if self._is_absent_in_pause(time, start) else NodeState.REGROUPING
        return NodeState.GONE if self._is_excluded(time) else NodeState.TRAINING

    def _is_excluded(self, time: float) -> bool:
        """Return True if the group trains without this node at a time, although no event explains it."""
        index = min(bisect_right(self._step_times, time), len(self._step_times) - 1)
        return index >= 0 and self._generations[index] in self._generations_without_node

    def _is_absent_in_pause(self, time: float, start: int) -> bool:
        """Return True if the group before or after a pause is without this node, and no worker has started on it since.

        A cloud gives each replaced machine another name, and the former one costs nothing in this or in later pauses.
        """
        index = bisect_right(self._step_times, time)
        steps_around = range(max(index - 1, 0), min(index + 1, len(self._generations)))
        return (
            index > 0
            and self._starts[start] <= self._step_times[index - 1]
            and any(self._generations[i] in self._generations_without_node for i in steps_around)
        )

    def _last_event(self, time: float) -> MachineEvent | None:
        index = bisect_right(self._event_times, time) - 1
        return self._events[index] if index >= 0 else None

    def _awaits_worker_start(self, event: MachineEvent, start: int) -> bool:
        """Return True if a machine has returned and no worker has started on it since.

        Always false for `thaw` and `reconnect`: the worker may have survived.
        """
        needs_start = event.kind in ("return", "add")
        return needs_start and (start < 0 or self._starts[start] < event.at)

    def _is_survivor(self, start: int, event: MachineEvent | None, time: float) -> bool:
        """Return True if this worker had trained on the node before this start, without an event in between.

        Its pause then follows from the steps around it.
        """
        if start == 0 or self._first_steps[start - 1] > time:
            return False
        return event is None or self._starts[start - 1] > event.at

    def _in_pause(self, time: float) -> bool:
        if self._stalled_at is not None and time >= self._stalled_at:
            return True
        index = bisect_right(self._pauses, time, key=lambda pause: pause[0]) - 1
        return index >= 0 and time < self._pauses[index][1]


def time_cells(
    segments: Sequence[Segment], start: float, end: float, width: int
) -> tuple[NodeState, ...]:
    """Return the most severe state of each of `width` cells of equal time."""
    size = (end - start) / width
    return tuple(
        _most_severe(segments, start + index * size, start + (index + 1) * size)
        for index in range(width)
    )


def _most_severe(segments: Sequence[Segment], start: float, end: float) -> NodeState:
    states = {piece.state for piece in segments if piece.start < end and start < piece.end}
    return next((state for state in _BY_SEVERITY if state in states), NodeState.WAITING)
