"""The record of a training run, from its files: journals of workers, events of machines, the result.

Everything that the command line shows about a training run comes from these values. Nothing here reads a clock or
the cluster, so reports of old and of current runs agree, and both can be tested with text.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, TypeGuard

from everstep.elastic.accounting import journal

ABSENCES = frozenset({"drain", "vanish", "cut", "freeze", "remove", "notice", "reclaim"})
"""Kinds of event after which a machine counts as absent; after a spot notice it leaves a little later."""

LOSSES = ABSENCES | {"kill"}
"""Kinds of event after which a worker is lost, even if only its process ended."""

ARRIVALS = frozenset({"return", "mend", "reconnect", "thaw", "add"})
"""Kinds of event after which a machine is present; older event files use the former name of `reconnect`."""

MAX_NUMBER = 1e15
"""Bound on the absolute value of a number in a journal; it excludes infinity."""

ENDS = {"freeze": frozenset({"thaw"}), "cut": frozenset({"mend", "reconnect"})}
"""Kind of event -> kinds of event that end it."""


@dataclass(frozen=True)
class JournalEntry:
    """One entry of a worker's journal.

    Attributes:
        at: Unix time in seconds.
        kind: kind of the entry, such as `step`.
        worker: name of the worker.
        values: all keys of the entry.
    """

    at: float
    kind: str
    worker: str
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def node(self) -> str:
        """Name of the worker's node; empty if it was not recorded."""
        return str(self.values.get("node") or "")

    def number(self, key: str, default: int = 0) -> int:
        """Return the integer of a key; the default if it is missing or not a number from 0: all of them are counts."""
        value = self.values.get(key)
        return int(value) if is_number(value) and value >= 0 else default

    def measure(self, key: str) -> float | None:
        """Return the measurement of a key; None if it was not measured or is not a finite number."""
        value = self.values.get(key)
        return float(value) if is_number(value) else None


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step that the group completed, as rank 0 recorded it; or a block of several steps.

    A block has the sums of `seconds` and `images` over `count` consecutive steps; its other values are
    the values of the last step.

    Attributes:
        at: Unix time in seconds at which the step was completed.
        step: number of the step, from 1.
        generation: generation of the group.
        world_size: number of workers in the group.
        seconds: duration of the step.
        images: samples of the step, summed over all workers.
        epoch: number of the epoch.
        loss: mean loss; None if it was not recorded.
        count: number of steps; 1 unless it is a block.
    """

    at: float
    step: int
    generation: int
    world_size: int
    seconds: float
    images: int
    epoch: int
    loss: float | None
    count: int = 1


@dataclass(frozen=True)
class MachineEvent:
    """An action on a machine.

    Attributes:
        at: Unix time in seconds.
        kind: kind of the event, such as `vanish`.
        node: name of the machine's node.
    """

    at: float
    kind: str
    node: str


@dataclass(frozen=True)
class Move:
    """A move of the group from one zone to another, as the controller recorded it.

    Attributes:
        began: Unix time of the decision, in whole seconds.
        ended: Unix time at which no worker was left in the old zone; None before that.
        origin: zone of the group before the move.
        to: zone of the group after it.
        reason: reason for the decision.
        abandoned: whether the group went back because its workers did not run in the new zone.
    """

    began: float
    ended: float | None
    origin: str
    to: str
    reason: str
    abandoned: bool = False


@dataclass(frozen=True)
class RunRecord:
    """Everything recorded about one training run. Entries, steps, events and moves are in order of time.

    Attributes:
        entries: journal entries of all workers, without the steps that `fold` has replaced by blocks.
        events: events of the machines.
        result: content of result.json; empty before it exists.
        blocks: blocks of older steps.
        moves: moves of the group between zones.
    """

    entries: tuple[JournalEntry, ...] = ()
    events: tuple[MachineEvent, ...] = ()
    result: Mapping[str, Any] = field(default_factory=dict)
    blocks: tuple[StepRecord, ...] = ()
    moves: tuple[Move, ...] = ()

    @cached_property
    def steps(self) -> tuple[StepRecord, ...]:
        """All completed steps, including repeated ones; older ones may be in blocks."""
        steps = [
            step_record(entry)
            for entry in without_copies(entry for entry in self.entries if entry.kind == "step")
        ]
        return tuple(sorted([*self.blocks, *steps], key=lambda step: step.at))

    @cached_property
    def starts(self) -> tuple[JournalEntry, ...]:
        """Starts of worker processes."""
        return self.of_kind("start")

    @cached_property
    def newest_start(self) -> JournalEntry | None:
        """Latest start, which has the job's name, model, data set and sizes."""
        return self.starts[-1] if self.starts else None

    @cached_property
    def total_steps(self) -> int:
        """Steps of the whole run; 0 before the first start."""
        ends = [*self.starts, *self.of_kind("early_stop")]
        newest = max(ends, key=lambda entry: entry.at, default=None)
        if newest is None:
            return 0
        return newest.number("step" if newest.kind == "early_stop" else "total_steps")

    @cached_property
    def finished(self) -> JournalEntry | None:
        """Entry that marks the end of the training; None before, and if the training has continued for more epochs.

        The worker that wrote the result may have been killed before it recorded the end: then it is the last entry.
        """
        last_step = max((step.step for step in self.steps), default=0)
        for entry in self.of_kind("finish"):
            if entry.number("step", last_step) >= last_step:
                return entry
        return self.entries[-1] if self.result and self.entries else None

    def of_kind(self, kind: str) -> tuple[JournalEntry, ...]:
        """Return all entries of one kind."""
        return self._by_kind.get(kind, ())

    @cached_property
    def _by_kind(self) -> Mapping[str, tuple[JournalEntry, ...]]:
        kinds: dict[str, list[JournalEntry]] = {}
        for entry in self.entries:
            kinds.setdefault(entry.kind, []).append(entry)
        return {kind: tuple(entries) for kind, entries in kinds.items()}

    @cached_property
    def step_times(self) -> Sequence[float]:
        """Times of all steps, for the lookup of a step by time."""
        return [step.at for step in self.steps]

    def step_after(self, time: float) -> StepRecord | None:
        """Return the first step that was completed after a time; None if there is none."""
        index = bisect_right(self.step_times, time)
        return self.steps[index] if index < len(self.steps) else None

    def step_before(self, time: float) -> StepRecord | None:
        """Return the last step that was completed at or before a time; None if there is none."""
        index = bisect_right(self.step_times, time)
        return self.steps[index - 1] if index else None

    def highest_step(self, before: float) -> int:
        """Return the highest step that was completed before a time; 0 if there is none."""
        index = bisect_left(self.step_times, before)
        return self._highest_steps[index - 1] if index else 0

    @cached_property
    def _highest_steps(self) -> Sequence[int]:
        return list(accumulate((step.step for step in self.steps), max))

    @cached_property
    def next_generation_steps(self) -> Sequence[StepRecord | None]:
        """The first later step of a higher generation, for each step; None if there is none."""
        next_steps: list[StepRecord | None] = [None] * len(self.steps)
        # Positions of steps whose next generation has not been found yet.
        pending_positions: list[int] = []
        for position, step in enumerate(self.steps):
            while (
                pending_positions and self.steps[pending_positions[-1]].generation < step.generation
            ):
                next_steps[pending_positions.pop()] = step
            pending_positions.append(position)
        return next_steps

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of all nodes with a worker or an event, sorted."""
        worker_nodes = {entry.node for entry in self.starts if entry.node}
        return tuple(sorted(worker_nodes | {event.node for event in self.training_events}))

    @cached_property
    def training_events(self) -> tuple[MachineEvent, ...]:
        """Events from the first worker's start to the end of the training.

        The reclaim of a machine is not counted after its notice: both are one event.
        """
        if not self.starts:
            return ()
        end = self.finished.at if self.finished else float("inf")
        return tuple(
            event
            for event in without_announced_reclaims(self.events)
            if self.starts[0].at <= event.at <= end
        )

    @cached_property
    def pauses(self) -> tuple[tuple[StepRecord, StepRecord], ...]:
        """Consecutive steps of different generations, between which the group formed again."""
        return tuple(
            (last, first)
            for last, first in pairwise(self.steps)
            if last.generation != first.generation
        )

    @cached_property
    def _starts_by_worker(self) -> Mapping[str, tuple[tuple[float, str], ...]]:
        """Start times and nodes of each worker; a replaced spot machine has another name."""
        starts: dict[str, list[tuple[float, str]]] = {}
        for entry in self.starts:
            starts.setdefault(entry.worker, []).append((entry.at, entry.node))
        return {worker: tuple(worker_starts) for worker, worker_starts in starts.items()}

    def node_of(self, worker: str, time: float) -> str:
        """Return the node of a worker at a time; empty before its first start."""
        starts = self._starts_by_worker.get(worker, ())
        index = bisect_right(starts, time, key=lambda start: start[0])
        return starts[index - 1][1] if index else ""

    def members(self, generation: int) -> Mapping[int, str]:
        """Return the nodes of one generation's group, by rank."""
        return self._groups.get(generation, {})

    @cached_property
    def _groups(self) -> Mapping[int, Mapping[int, str]]:
        groups: dict[int, dict[int, str]] = {}
        for entry in self.entries:
            if entry.kind in ("start", "generation"):
                group = groups.setdefault(entry.number("generation"), {})
                group[entry.number("rank")] = self.node_of(entry.worker, entry.at)
        return groups

    def worker_on(self, node: str, time: float) -> str | None:
        """Return the worker on a node at a time: it started there and has not left."""
        workers = self._workers_by_node.get(node, ())
        index = bisect_right(workers, time, key=lambda item: item[0])
        return workers[index - 1][1] if index else None

    def departed_at(self, node: str) -> float | None:
        """Return the Unix time at which the last worker left a node; None if a worker is there, or never was."""
        changes = self._workers_by_node.get(node, ())
        return changes[-1][0] if changes and changes[-1][1] is None else None

    @cached_property
    def _workers_by_node(self) -> Mapping[str, Sequence[tuple[float, str | None]]]:
        """Each change of the worker on a node, by node: its time, and the worker from then on, or None."""
        nodes: dict[str, str] = {}
        present: dict[str, dict[str, None]] = {}  # workers by node, in order of arrival
        workers_by_node: dict[str, list[tuple[float, str | None]]] = {}
        for entry in self.entries:
            if entry.kind not in ("start", "leave", "finish"):
                continue
            changed_nodes = [nodes.pop(entry.worker)] if entry.worker in nodes else []
            for node in changed_nodes:
                present[node].pop(entry.worker, None)
            if entry.kind == "start":
                node = nodes[entry.worker] = entry.node
                present.setdefault(node, {})[entry.worker] = None
                changed_nodes.append(node)
            for node in changed_nodes:
                worker = next(iter(present[node]), None)
                workers_by_node.setdefault(node, []).append((entry.at, worker))
        return workers_by_node

    @cached_property
    def _events_by_node(self) -> Mapping[str, tuple[MachineEvent, ...]]:
        nodes: dict[str, list[MachineEvent]] = {}
        for event in self.training_events:
            nodes.setdefault(event.node, []).append(event)
        return {node: tuple(events) for node, events in nodes.items()}

    def events_on(self, node: str) -> tuple[MachineEvent, ...]:
        """Return the training's events on a node."""
        return self._events_by_node.get(node, ())

    @cached_property
    def _starts_by_node(self) -> Mapping[str, tuple[float, ...]]:
        nodes: dict[str, list[float]] = {}
        for entry in self.starts:
            nodes.setdefault(entry.node, []).append(entry.at)
        return {node: tuple(times) for node, times in nodes.items()}

    def starts_on(self, node: str) -> tuple[float, ...]:
        """Return the times at which workers started on a node."""
        return self._starts_by_node.get(node, ())


def is_number(value: object) -> TypeGuard[float]:
    """Return True if a JSON value is a number within MAX_NUMBER; a journal may have other values, and NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return -MAX_NUMBER < value < MAX_NUMBER


def without_announced_reclaims(events: Iterable[MachineEvent]) -> Iterator[MachineEvent]:
    """Yield events in order, except for the reclaim of a machine after its notice."""
    announced_nodes: set[str] = set()
    for event in events:
        if event.kind == "reclaim" and event.node in announced_nodes:
            continue
        if event.kind == "notice":
            announced_nodes.add(event.node)
        elif event.kind in ARRIVALS:
            announced_nodes.discard(event.node)
        yield event


def step_record(entry: JournalEntry) -> StepRecord:
    """Return the step that a journal entry records."""
    return StepRecord(
        at=entry.at,
        step=entry.number("step"),
        generation=entry.number("generation"),
        world_size=entry.number("world_size", 1),
        seconds=entry.measure("seconds") or 0.0,
        images=entry.number("images"),
        epoch=entry.number("epoch"),
        loss=entry.measure("loss"),
    )


def without_copies(steps: Iterable[JournalEntry]) -> list[JournalEntry]:
    """Return the entries of steps, in order, without repeated entries of the same computation.

    When a group changes, a worker records the newest steps again, marked `again`, in case the worker that should have
    recorded them is gone. Such an entry counts if no other entry records the step of that generation.
    """
    steps = list(steps)
    recorded = {_computation(entry) for entry in steps if not entry.values.get("again")}
    counted_entries: list[JournalEntry] = []
    for entry in steps:
        if entry.values.get("again"):
            if _computation(entry) in recorded:
                continue
            recorded.add(_computation(entry))
        counted_entries.append(entry)
    return counted_entries


def _computation(entry: JournalEntry) -> tuple[int, int]:
    return entry.number("generation"), entry.number("step")


def parse_journal(worker: str, text: str) -> list[JournalEntry]:
    """Return the entries of one worker's journal; skip lines that a killed writer left incomplete."""
    return [
        JournalEntry(
            float(entry["at"]), str(entry["kind"]), str(entry.get("worker", worker)), entry
        )
        for entry in journal.parse(text)
        if is_number(entry["at"])
    ]


def parse_events(text: str) -> list[MachineEvent]:
    """Return the machines' events; skip an incomplete line."""
    return [
        MachineEvent(float(entry["at"]), str(entry["kind"]), str(entry.get("node", "")))
        for entry in journal.parse(text)
        if is_number(entry["at"])
    ]


def parse_moves(text: str) -> tuple[Move, ...]:
    """Return the recorded moves, in order; none if the record is missing or damaged."""
    try:
        moves = [Move(**move) for move in json.loads(text)]
    except (ValueError, TypeError):
        return ()
    if not all(is_number(move.began) and is_number(move.ended or 0) for move in moves):
        return ()
    return tuple(sorted(moves, key=lambda move: move.began))


def parse_result(text: str) -> Mapping[str, Any]:
    """Return the content of result.json; empty if it does not exist or is damaged."""
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def assemble(journals: Mapping[str, str], events: str = "", result: str = "") -> RunRecord:
    """Return a run record from the contents of its files.

    Args:
        journals: journals by worker name. Entries with the same time stay in their order.
        events: events of machines.
        result: content of result.json.
    """
    entries = [entry for worker, text in journals.items() for entry in parse_journal(worker, text)]
    return RunRecord(
        entries=tuple(sorted(entries, key=lambda entry: entry.at)),
        events=tuple(sorted(parse_events(events), key=lambda event: event.at)),
        result=parse_result(result),
    )
