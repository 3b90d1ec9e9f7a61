"""Where every second of every node went, from the journals and the machines' events.

Pure: `strips` gives each node's life as segments without gaps, `cells` lays one over a row of
characters. The screens colour these; the rule for what a second was called is here and nowhere
else.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from everstep.cli.run import ABSENCES, ARRIVALS, Event, Run


class State(StrEnum):
    """What a node did for the training."""

    WAITING = "waiting"
    """No worker has entered training there yet."""
    REGROUPING = "regrouping"
    """A worker is there, or coming, and the group is forming anew."""
    TRAINING = "training"
    """Its worker takes part in steps."""
    GONE = "gone"
    """Drained, vanished, cut off, frozen or removed."""
    DONE = "done"
    """The training has ended."""


_BY_WEIGHT = (State.GONE, State.REGROUPING, State.TRAINING, State.DONE, State.WAITING)
"""Of several states in a cell the first of these shows: a short outage is not painted over."""


@dataclass(frozen=True)
class Segment:
    """A node was in one state from `start` up to `end`, in unix seconds."""

    start: float
    end: float
    state: State


@dataclass(frozen=True)
class Strip:
    """The life of one node."""

    node: str
    segments: tuple[Segment, ...]


def span(run: Run, now: float) -> tuple[float, float]:
    """The time that a timeline covers: from the first start to the end, or to now."""
    if not run.starts:
        return (now, now)
    end = run.finished.at if run.finished else max(now, run.lines[-1].at)
    return (run.starts[0].at, end)


def strips(run: Run, now: float) -> tuple[Strip, ...]:
    """One strip a node, sorted by name; together the segments of each cover the whole span."""
    start, end = span(run, now)
    if end <= start:
        return ()
    return tuple(Strip(node, _segments(run, node, start, end)) for node in run.nodes)


def _segments(run: Run, node: str, start: float, end: float) -> tuple[Segment, ...]:
    cuts = sorted({start, end, *(at for at in _turning_points(run, node) if start < at < end)})
    judge = _Judge(run, node)
    merged: list[Segment] = []
    for left, right in pairwise(cuts):
        state = judge.state(left)
        if merged and merged[-1].state is state:
            merged[-1] = Segment(merged[-1].start, right, state)
        else:
            merged.append(Segment(left, right, state))
    return tuple(merged)


def _turning_points(run: Run, node: str) -> set[float]:
    """Every time at which the node's state may change."""
    points = {event.at for event in run.training_events if event.node == node}
    for line in run.starts:
        if line.values.get("node") == node:
            points |= {line.at, _next_step(run, line.at)}
    for last, first in run.pauses:
        points |= {last.at, first.at}
    stalled = stalled_since(run)
    return points if stalled is None else points | {stalled}


def _next_step(run: Run, at: float) -> float:
    """When the first step after a time was finished; never, if none was."""
    return next((step.at for step in run.steps if step.at > at), float("inf"))


def stalled_since(run: Run) -> float | None:
    """Since when the survivors have been waiting for a new group, None if they are not."""
    if run.finished or not run.steps:
        return None
    last = run.steps[-1]
    forming = [
        line.at
        for line in run.lines
        if line.kind in ("start", "generation") and line.number("generation") > last.generation
    ]
    losses = [event.at for event in run.training_events if _unanswered(run, event)]
    since = [max(at, last.at) for at in (*forming, *losses)]
    return min(since, default=None)


def _unanswered(run: Run, event: Event) -> bool:
    """Whether a worker was lost and no step has been finished in a newer group since."""
    if event.kind not in ("drain", "vanish", "remove"):
        return False
    before = [step.generation for step in run.steps if step.at <= event.at]
    newest = run.steps[-1].generation
    return newest == (before[-1] if before else newest) and (
        run.worker_on(event.node, event.at) is not None
    )


class _Judge:
    """Says what one node was doing at a time; keeps the lists it looks into."""

    def __init__(self, run: Run, node: str) -> None:
        self._events = [event for event in run.training_events if event.node == node]
        self._event_times = [event.at for event in self._events]
        self._entries = [line.at for line in run.starts if line.values.get("node") == node]
        self._firsts = [_next_step(run, at) for at in self._entries]
        self._pauses = [(last.at, first.at) for last, first in run.pauses]
        self._times = [step.at for step in run.steps]
        self._generations = [step.generation for step in run.steps]
        self._absent = {
            generation
            for generation in set(self._generations)
            if (group := run.members(generation)) and node not in group.values()
        }
        self._stalled = stalled_since(run)
        self._done = run.finished.at if run.finished else float("inf")

    def state(self, at: float) -> State:
        """The state from this time on, up to the next turning point."""
        if at >= self._done:
            return State.DONE
        event = self._last_event(at)
        if event is not None and event.kind in ABSENCES:
            return State.GONE
        entered = bisect_right(self._entries, at) - 1
        if event is not None and event.kind in ARRIVALS and self._not_back(event, entered):
            return State.REGROUPING
        if entered < 0:
            return State.WAITING
        if at < self._firsts[entered] and not self._trained_before(entered, event, at):
            return State.REGROUPING
        if self._in_pause(at):
            return State.REGROUPING
        return State.GONE if self._left_out(at) else State.TRAINING

    def _left_out(self, at: float) -> bool:
        """Whether the group that trains then does so without this node: lost, though nobody said so."""
        index = min(bisect_right(self._times, at), len(self._times) - 1)
        return index >= 0 and self._generations[index] in self._absent

    def _last_event(self, at: float) -> Event | None:
        index = bisect_right(self._event_times, at) - 1
        return self._events[index] if index >= 0 else None

    def _not_back(self, event: Event, entered: int) -> bool:
        """Whether the machine is back but no worker has entered training on it since.

        One that was only frozen or cut off for a moment may never have lost its worker.
        """
        lost_its_worker = event.kind in ("return", "add")
        return lost_its_worker and (entered < 0 or self._entries[entered] < event.at)

    def _trained_before(self, entered: int, event: Event | None, at: float) -> bool:
        """Whether this entry is a survivor's, whose pause is told by the steps around it."""
        if entered == 0 or self._firsts[entered - 1] > at:
            return False
        return event is None or self._entries[entered - 1] > event.at

    def _in_pause(self, at: float) -> bool:
        if self._stalled is not None and at >= self._stalled:
            return True
        return any(last <= at < first for last, first in self._pauses)


def cells(segments: Sequence[Segment], start: float, end: float, width: int) -> tuple[State, ...]:
    """Lay segments over `width` cells of equal time; a cell shows the gravest state in it."""
    size = (end - start) / width
    return tuple(
        _gravest(segments, start + index * size, start + (index + 1) * size)
        for index in range(width)
    )


def _gravest(segments: Sequence[Segment], start: float, end: float) -> State:
    present = {piece.state for piece in segments if piece.start < end and start < piece.end}
    return next((state for state in _BY_WEIGHT if state in present), State.WAITING)
