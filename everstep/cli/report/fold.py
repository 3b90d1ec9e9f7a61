"""A run's record of bounded size, however many steps the run has.

A month of training has millions of steps, and `follow` needs all of them twice a second. So entries are
parsed once, and older steps are folded into blocks: records that stand for many consecutive steps of one
group. Steps next to a change of the group, an event or a worker's start are not folded, and neither are
the newest steps and steps that a worker may still copy into its own journal. Only the median throughput becomes an
approximation: the median of blocks instead of steps.
"""

import math
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from everstep.cli.report.run_record import (
    JournalEntry,
    MachineEvent,
    RunRecord,
    StepRecord,
    parse_journal,
    step_record,
    without_copies,
)
from everstep.elastic.accounting.journal import LARGE_CLOSE_SECONDS

RECENT_STEPS = 1000
MAX_BLOCKS = 500
BLOCK_STEPS = 100  # maximum for a new block; older blocks are merged when there are too many
RECENT_CHECKPOINTS = 100
COPY_SECONDS = LARGE_CLOSE_SECONDS
"""Age up to which a worker copies the steps of another one into its journal."""


@dataclass
class RunFold:
    """The journals of a run so far.

    Attributes:
        recent_steps: number of the newest steps that are not folded.
    """

    recent_steps: int = RECENT_STEPS
    _entries: list[JournalEntry] = field(default_factory=list)  # entries of the rare kinds
    _checkpoints: deque[JournalEntry] = field(
        default_factory=lambda: deque(maxlen=RECENT_CHECKPOINTS)
    )
    _seconds: dict[str, list[JournalEntry]] = field(default_factory=dict)
    _last_starts: dict[str, float] = field(default_factory=dict)  # time by worker
    _steps: list[JournalEntry] = field(default_factory=list)
    _blocks: list[StepRecord] = field(default_factory=list)

    def add(
        self,
        worker: str,
        text: str,
        events: Iterable[MachineEvent] = (),
        complete_until: float = math.inf,
    ) -> float:
        """Add complete lines of one worker's journal, in their order; return the time of the newest, or -infinity.

        Args:
            worker: name of the worker.
            text: the lines.
            events: events of machines.
            complete_until: time until which the other journals have been added; later steps are not folded.
        """
        newest_at = -math.inf
        for entry in parse_journal(worker, text):
            self._add_entry(entry)
            newest_at = max(newest_at, entry.at)
        if len(self._steps) > 2 * self.recent_steps:
            self._fold([event.at for event in events], complete_until)
        return newest_at

    def record(
        self, events: Iterable[MachineEvent] = (), result: Mapping[str, Any] | None = None
    ) -> RunRecord:
        """Return the run so far."""
        seconds = (entry for entries in self._seconds.values() for entry in entries)
        entries = [*self._entries, *self._checkpoints, *seconds, *self._steps]
        return RunRecord(
            entries=tuple(sorted(entries, key=lambda entry: entry.at)),
            events=tuple(sorted(events, key=lambda event: event.at)),
            result=result or {},
            blocks=tuple(self._blocks),
        )

    def _add_entry(self, entry: JournalEntry) -> None:
        match entry.kind:
            case "step":
                self._steps.append(entry)
            case "checkpoint":
                self._checkpoints.append(entry)
            case "seconds":
                self._add_seconds(entry)
            case _:
                if entry.kind == "start":
                    self._last_starts[entry.worker] = entry.at
                self._entries.append(entry)

    def _add_seconds(self, entry: JournalEntry) -> None:
        """Keep the first and the last entry of each process: its sums only grow."""
        worker_entries = self._seconds.setdefault(entry.worker, [])
        last_start = self._last_starts.get(entry.worker, 0.0)
        if len(worker_entries) >= 2 and worker_entries[-2].at >= last_start:
            worker_entries[-1] = entry
        else:
            worker_entries.append(entry)

    # --- folding ---

    def _fold(self, event_times: list[float], complete_until: float) -> None:
        self._steps = without_copies(sorted(self._steps, key=lambda entry: entry.at))
        copied_from = min(complete_until, self._steps[-1].at) - COPY_SECONDS
        count = bisect_left(self._steps, copied_from, key=lambda entry: entry.at)
        older = self._steps[: max(min(count, len(self._steps) - self.recent_steps), 0)]
        retained_steps = self._retained(event_times)
        blocks = list(_fold_steps(older, retained_steps))
        self._steps = [
            entry for i, entry in enumerate(self._steps) if i in retained_steps or i >= len(older)
        ]
        self._blocks = sorted([*self._blocks, *blocks], key=lambda block: block.at)
        while len(self._blocks) > MAX_BLOCKS:
            merged = list(_merge_pairs(self._blocks))
            if len(merged) == len(self._blocks):
                break
            self._blocks = merged

    def _retained(self, event_times: list[float]) -> set[int]:
        """Return the positions of the steps that are not folded: reports need each of them."""
        steps = self._steps
        times = [entry.at for entry in steps]
        starts = [entry.at for entry in self._entries if entry.kind == "start"]
        near = [
            bisect_left(times, time) + shift
            for time in (*starts, *event_times)
            for shift in (-2, -1, 0, 1)
        ]
        repeats = Counter(entry.number("step") for entry in steps)
        groups = [_group(entry) for entry in steps]
        edges = [
            i
            for i, entry in enumerate(steps)
            if repeats[entry.number("step")] > 1
            or groups[i] != groups[max(i - 1, 0)]
            or groups[i] != groups[min(i + 1, len(steps) - 1)]
        ]
        return {0, *near, *edges}


def _group(entry: JournalEntry) -> tuple[int, int]:
    return entry.number("generation"), entry.number("world_size", 1)


def _fold_steps(steps: list[JournalEntry], retained_steps: set[int]) -> Iterator[StepRecord]:
    """Yield blocks for all steps that are not retained."""
    block: StepRecord | None = None
    for position, entry in enumerate(steps):
        if position in retained_steps:
            continue
        step = step_record(entry)
        if block is None:
            block = step
        elif block.count < BLOCK_STEPS and _follows(block, step):
            block = _merge(block, step)
        else:
            yield block
            block = step
    if block is not None:
        yield block


def _merge_pairs(blocks: list[StepRecord]) -> Iterator[StepRecord]:
    """Yield the blocks; merge pairs of blocks whose steps are consecutive and of one group."""
    previous: StepRecord | None = None
    for block in blocks:
        if previous is None:
            previous = block
        elif _follows(previous, block):
            yield _merge(previous, block)
            previous = None
        else:
            yield previous
            previous = block
    if previous is not None:
        yield previous


def _follows(block: StepRecord, step: StepRecord) -> bool:
    is_same_group = (block.generation, block.world_size) == (step.generation, step.world_size)
    return is_same_group and block.step == step.step - step.count


def _merge(block: StepRecord, step: StepRecord) -> StepRecord:
    return replace(
        step,
        seconds=block.seconds + step.seconds,
        images=block.images + step.images,
        count=block.count + step.count,
    )
