"""A training run as its files tell it: journals of the workers, events of the machines, the result.

Everything that the command line shows about a training comes from these values; nothing here
reads a clock or asks the cluster. So a report of last week's run and the live view of today's
cannot disagree, and both can be tested with text.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from everstep.elastic import journal

ABSENCES = frozenset({"drain", "vanish", "cut", "freeze", "remove", "notice", "reclaim"})
"""Kinds of event that take a machine away; with a spot notice it begins to leave."""

LOSSES = ABSENCES | {"kill"}
"""Kinds of event that take a worker away: also the death of its process alone."""

ARRIVALS = frozenset({"return", "mend", "thaw", "add"})
"""Kinds of event that bring a machine back."""


@dataclass(frozen=True)
class Line:
    """One line of a worker's journal."""

    at: float
    kind: str
    worker: str
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def number(self, key: str, default: int = 0) -> int:
        """The whole number under a key."""
        return int(self.values.get(key, default))

    def measure(self, key: str) -> float | None:
        """The measured number under a key, None where it was not measured."""
        value = self.values.get(key)
        return None if value is None else float(value)


@dataclass(frozen=True)
class Step:
    """One optimizer step that the group finished, as rank 0 wrote it down."""

    at: float
    step: int
    generation: int
    world_size: int
    seconds: float
    images: int
    epoch: int
    loss: float | None
    again: bool = False  # written once more by the one that leads since; not done again


@dataclass(frozen=True)
class Event:
    """Something that was done to a machine."""

    at: float
    kind: str
    node: str


@dataclass(frozen=True)
class Run:
    """What is known of one training run. Lines, steps and events are each in the order of time."""

    lines: tuple[Line, ...] = ()
    events: tuple[Event, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every finished step, repeated ones included."""
        return tuple(_step(line) for line in self.lines if line.kind == "step")

    @cached_property
    def starts(self) -> tuple[Line, ...]:
        """Each time a worker process entered training."""
        return self.of_kind("start")

    @cached_property
    def newest_start(self) -> Line | None:
        """The last worker's entry: it carries the job's name, model, data set and sizes."""
        return self.starts[-1] if self.starts else None

    @cached_property
    def finished(self) -> Line | None:
        """The line by which the training said that it was done."""
        finishes = self.of_kind("finish")
        return finishes[0] if finishes else None

    def of_kind(self, kind: str) -> tuple[Line, ...]:
        """All lines of one kind."""
        return tuple(line for line in self.lines if line.kind == kind)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Every node that held a worker or that something was done to, by name."""
        held = {str(line.values["node"]) for line in self.starts if line.values.get("node")}
        return tuple(sorted(held | {event.node for event in self.training_events}))

    @cached_property
    def training_events(self) -> tuple[Event, ...]:
        """The events from the first worker's start until the training was done.

        That a machine is reclaimed is no event of its own: it ends what its notice began.
        """
        if not self.starts:
            return ()
        end = self.finished.at if self.finished else float("inf")
        noticed = {event.node for event in self.events if event.kind == "notice"}
        return tuple(
            event
            for event in self.events
            if self.starts[0].at <= event.at <= end
            and not (event.kind == "reclaim" and event.node in noticed)
        )

    @cached_property
    def pauses(self) -> tuple[tuple[Step, Step], ...]:
        """Neighbouring steps of two generations: between them the group formed anew."""
        return tuple(
            (last, first)
            for last, first in pairwise(self.steps)
            if last.generation != first.generation
        )

    @cached_property
    def _moves(self) -> Mapping[str, tuple[tuple[float, str], ...]]:
        """When each worker started, and on which node; a spot machine's successor has another name."""
        moves: dict[str, list[tuple[float, str]]] = {}
        for line in self.starts:
            moves.setdefault(line.worker, []).append((line.at, str(line.values.get("node", ""))))
        return {worker: tuple(found) for worker, found in moves.items()}

    def home(self, worker: str, at: float) -> str:
        """The node that a worker was on at a time; empty before its first start."""
        nodes = [node for since, node in self._moves.get(worker, ()) if since <= at]
        return nodes[-1] if nodes else ""

    def members(self, generation: int) -> Mapping[int, str]:
        """The nodes of one generation's group, by rank."""
        return {
            line.number("rank"): self.home(line.worker, line.at)
            for line in self.lines
            if line.kind in ("start", "generation") and line.number("generation") == generation
        }

    def worker_on(self, node: str, at: float) -> str | None:
        """The worker that a node held at a time: it started there and has not left."""
        home: dict[str, str] = {}
        for line in self.lines:
            if line.at > at:
                break
            if line.kind == "start":
                home[line.worker] = str(line.values.get("node", ""))
            elif line.kind in ("leave", "finish"):
                home.pop(line.worker, None)
        return next((worker for worker, where in home.items() if where == node), None)


def _step(line: Line) -> Step:
    return Step(
        at=line.at,
        step=line.number("step"),
        generation=line.number("generation"),
        world_size=line.number("world_size", 1),
        seconds=line.measure("seconds") or 0.0,
        images=line.number("images"),
        epoch=line.number("epoch"),
        loss=line.measure("loss"),
        again=bool(line.values.get("again")),
    )


def parse_journal(worker: str, text: str) -> list[Line]:
    """Read one worker's journal; what a killed writer left half written is passed over."""
    return [
        Line(float(entry["at"]), str(entry["kind"]), str(entry.get("worker", worker)), entry)
        for entry in journal.parse(text)
    ]


def parse_events(text: str) -> list[Event]:
    """Read the machines' events, passing over a half written line."""
    return [
        Event(float(entry["at"]), str(entry["kind"]), str(entry.get("node", "")))
        for entry in journal.parse(text)
    ]


def parse_result(text: str) -> Mapping[str, Any]:
    """Read result.json; empty where it is not there yet."""
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def assemble(journals: Mapping[str, str], events: str = "", result: str = "") -> Run:
    """Put a run together from the texts of its files; `journals` goes by worker name.

    What happened at the same time stays in the order of writing.
    """
    lines = [line for worker, text in journals.items() for line in parse_journal(worker, text)]
    return Run(
        lines=tuple(sorted(lines, key=lambda line: line.at)),
        events=tuple(sorted(parse_events(events), key=lambda event: event.at)),
        result=parse_result(result),
    )
