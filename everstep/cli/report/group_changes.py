"""Changes of the training group, from the journals only.

A run on a cloud has no record of machines' events, so the events are derived from consecutive groups: a worker
that is missing in the next group, or whose process was replaced, has left if its journal records that, and was lost
otherwise; a worker whose process started in between has joined.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from everstep.cli.report.run_record import JournalEntry, RunRecord


@dataclass(frozen=True)
class GroupChange:
    """One change of the group; workers by name.

    Attributes:
        at: Unix time of the last step of the old group.
        resumed_at: Unix time of the first step of the new group.
        lost_workers: workers that disappeared without leaving gracefully.
        departed_workers: workers that left gracefully.
        joined_workers: workers that joined.
        none_stayed: whether no worker of the old group is in the new group with the same process.
        reason: reason for the change that a worker recorded; empty if no worker did.
        recorded_loss: whether a worker recorded the loss of its group.
    """

    at: float
    resumed_at: float
    lost_workers: frozenset[str]
    departed_workers: frozenset[str]
    joined_workers: frozenset[str]
    none_stayed: bool
    reason: str
    recorded_loss: bool


def group_changes(run: RunRecord) -> tuple[GroupChange, ...]:
    """Return all changes of the group between completed steps, by time."""
    groups: dict[int, set[str]] = {}
    for entry in run.of_kind("generation"):
        groups.setdefault(entry.number("generation"), set()).add(entry.worker)
    indices = {kind: _EntryIndex(run.of_kind(kind)) for kind in ("start", "leave", "lost")}
    changes = []
    for last, first in run.pauses:
        entries_by_kind = {
            kind: index.between(last.at, first.at) for kind, index in indices.items()
        }
        workers = {
            kind: {entry.worker for entry in entries} for kind, entries in entries_by_kind.items()
        }
        before, after = (groups.get(step.generation, set()) for step in (last, first))
        gone = (before - after) | (before & workers["start"])
        left = gone & workers["leave"]
        change = GroupChange(
            at=last.at,
            resumed_at=first.at,
            lost_workers=frozenset(gone - left),
            departed_workers=frozenset(left),
            joined_workers=frozenset((after - before) | (after & workers["start"])),
            none_stayed=gone >= before,
            reason=_reason([*entries_by_kind["leave"], *entries_by_kind["lost"]]),
            recorded_loss=bool(workers["lost"]),
        )
        changes.append(change)
    return tuple(changes)


def _reason(entries: Sequence[JournalEntry]) -> str:
    reasons = (str(entry.values.get("reason") or "") for entry in entries)
    return next((reason for reason in reasons if reason), "")


class _EntryIndex:
    """Journal entries of one kind, to look up by time."""

    def __init__(self, entries: Sequence[JournalEntry]) -> None:
        self._entries = entries
        self._times = [entry.at for entry in entries]

    def between(self, begin: float, end: float) -> Sequence[JournalEntry]:
        """Return the entries from `begin` to `end`, inclusive."""
        return self._entries[bisect_left(self._times, begin) : bisect_right(self._times, end)]
