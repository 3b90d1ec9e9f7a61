"""The moves of a group between zones: their log and their costs.

The controller keeps the newest moves in the job's status, which is deleted with the job. Commands that read a cluster
therefore record them in a file of the stack's state, one for each job: several jobs may share a platform and its state.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from everstep.cli.kubernetes_client import unix_time
from everstep.cli.report.run_record import Move, RunRecord, StepRecord, parse_moves
from everstep.files import write_atomically

RESOLUTION_SECONDS = 1.0
"""Resolution of the times in a job's status."""


@dataclass(frozen=True)
class MoveCost:
    """One move and its cost in the group's time; None while it is under way. docs/report.md has the definitions."""

    began: float
    ended: float | None
    origin: str
    to: str
    reason: str
    abandoned: bool
    seconds: float | None
    steps_lost: int | None


def moves_in(status: Mapping[str, Any]) -> tuple[Move, ...]:
    """Return the moves in the status of an ElasticJob; empty if there is none."""
    placement = status.get("placement") or {}
    return tuple(
        Move(
            began=started_at,
            ended=unix_time(move.get("ended")),
            origin=str(move.get("from", "")),
            to=str(move.get("to", "")),
            reason=str(move.get("reason", "")),
            abandoned=bool(move.get("abandoned")),
        )
        for move in placement.get("moves") or ()
        if (started_at := unix_time(move.get("began"))) is not None
    )


def moves_file(folder: Path, job: str) -> Path:
    """Return the file with the moves of a job in the folder of its stack's state."""
    return folder / f"moves-{job}.json"


@dataclass
class MoveLog:
    """The moves that commands have observed.

    Attributes:
        path: file of the log; created with the first move.
        observed: moves by the time at which they began.
    """

    path: Path
    observed: dict[float, Move] = field(init=False)

    def __post_init__(self) -> None:
        self.observed = {move.began: move for move in parse_moves(_text(self.path))}

    def add(self, status: Mapping[str, Any]) -> None:
        """Record the moves in a job's status; a move that has ended replaces the one under way."""
        moves = {move.began: move for move in moves_in(status)}
        if moves.items() <= self.observed.items():
            return
        self.observed |= moves
        ordered = [asdict(move) for _, move in sorted(self.observed.items())]
        write_atomically(self.path, json.dumps(ordered))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def move_costs(run: RunRecord) -> tuple[MoveCost, ...]:
    """Return the moves of a run in order, with their costs."""
    return tuple(_cost(run, move) for move in run.moves)


def _cost(run: RunRecord, move: Move) -> MoveCost:
    pauses = None if end_of(run, move) is None else tuple(_pauses(run, move))
    return MoveCost(
        **asdict(move),
        seconds=None if pauses is None else sum(_lost_seconds(run, move, *p) for p in pauses),
        steps_lost=None if pauses is None else sum(_steps_lost(run, first) for _, first in pauses),
    )


def end_of(run: RunRecord, move: Move) -> float | None:
    """Return the time at which the group finally trained again; None while the move is under way.

    That is the end of the move, or of the first step after it if the group had to form again.
    """
    if move.ended is None:
        return None
    end_times = [first.at for _, first in _pauses(run, move)]
    if max(end_times, default=0.0) <= move.ended and run.step_after(move.ended) is None:
        return move.ended if run.finished else None
    return max([move.ended, *end_times])


def _pauses(run: RunRecord, move: Move) -> Iterator[tuple[StepRecord, StepRecord]]:
    """Yield the pauses of the group between the decision to move and the move's end."""
    end = float("inf") if move.ended is None else move.ended + RESOLUTION_SECONDS
    for last, first in run.pauses:
        if first.at > move.began and last.at <= end:
            yield last, first


def _lost_seconds(run: RunRecord, move: Move, last: StepRecord, first: StepRecord) -> float:
    """Return the time without a step since the decision, and the time of repeated steps."""
    pause_seconds = max(first.at - first.seconds - max(last.at, move.began), 0.0)
    return pause_seconds + sum(step.seconds for step in _repeated(run.steps, first))


def _repeated(steps: Sequence[StepRecord], first: StepRecord) -> Iterator[StepRecord]:
    """Yield the steps that were completed before `first` and are computed again by `first` and later steps."""
    for step in steps:
        if step.at < first.at and step.step >= first.step:
            yield step


def _steps_lost(run: RunRecord, first: StepRecord) -> int:
    return max(run.highest_step(first.at) - (first.step - 1), 0)
