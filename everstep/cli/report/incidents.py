"""Incidents of a training run and their causes: machine events, group changes, and notes of workers.

A machine event states its cause. A change of the group that no machine event explains, as on a cloud, which
records none, gets its cause from the records of the workers. Both are *incidents*, in order of time. The page and
the terminal list them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

from everstep.cli.report.group_changes import GroupChange, group_changes
from everstep.cli.report.moves import MoveCost
from everstep.cli.report.report import EventRecovery
from everstep.cli.report.run_record import ARRIVALS, LOSSES, JournalEntry, RunRecord
from everstep.cli.report.stalls import LongWait


class CapacityEffect(StrEnum):
    """Effect of an incident on the capacity."""

    LOSS = "loss"
    ARRIVAL = "arrival"
    NOTE = "note"


@dataclass(frozen=True)
class Incident:
    """One incident; None where a value is not known or does not apply.

    Attributes:
        at: Unix time.
        effect: its effect on the capacity.
        kind: kind, in a few words.
        subject: the node or the worker.
        node: the affected node; empty if it is unknown or there are several.
        cause: a sentence that states the cause.
        evidence: the recorded reason: of the controller for a move, otherwise of a worker; empty if there is none.
        seconds_to_next_step: recovery time as docs/report.md defines it.
        steps_lost: steps that had to be repeated.
        seconds_to_join: seconds until a machine's worker joined.
        recovered: whether training has continued since; None for a note.
    """

    at: float
    effect: CapacityEffect
    kind: str
    subject: str
    node: str
    cause: str
    evidence: str = ""
    seconds_to_next_step: float | None = None
    steps_lost: int | None = None
    seconds_to_join: float | None = None
    recovered: bool | None = None


CAUSES = {
    "drain": "The node was drained, as for maintenance; its worker left after a step.",
    "vanish": "The machine disappeared without notice.",
    "notice": "The cloud announced that it would reclaim the spot machine.",
    "reclaim": "The cloud reclaimed the spot machine.",
    "remove": "The machine was removed.",
    "freeze": "The machine stopped running, but kept its connections.",
    "cut": "The machine lost its network.",
    "kill": "The worker's process was killed; its machine stayed.",
    "return": "The machine came back.",
    "add": "A machine was added.",
    "thaw": "The frozen machine runs again.",
    "mend": "The machine has its network again.",
    "reconnect": "The machine has its network again.",
}
"""Cause of each kind of machine event."""

NOTES = {
    "restore": ("resumed", "Training continued from the checkpoint of step {step}."),
    "checkpoint_failed": ("save failed", "The checkpoint of step {step} was not written."),
    "skip_checkpoint": ("checkpoint skipped", "A checkpoint could not be used."),
    "lost_checkpoint": ("checkpoint lost", "The checkpoint of step {step} could not be read."),
    "nonfinite_step": ("non-finite loss", "Step {step} was not applied to the model."),
    "overflowed_step": (
        "gradient overflow",
        "Step {step} was not applied to the model; the gradient scaler lowered its scale.",
    ),
    "unequal_state": (
        "unequal state",
        "Workers differed after step {step}; they were given equal state.",
    ),
    "lost_lines": ("journal lost lines", "The disk did not accept {lines} lines of the journal."),
}
"""Name and cause of each kind of journal entry that readers of a report should see."""


def incidents(
    run: RunRecord,
    events: Sequence[EventRecovery],
    moves: Sequence[MoveCost] = (),
    waits: Sequence[LongWait] = (),
) -> tuple[Incident, ...]:
    """Return all incidents by time.

    Args:
        run: the run.
        events: its machine events, as `report.build` returns them.
        moves: its moves between zones, as `report.build` returns them.
        waits: its waits for slow nodes, as `report.build` returns them.
    """
    notes = [_note_incident(run, entry) for entry in run.entries if entry.kind in NOTES]
    return _by_time(
        [
            *capacity_incidents(run, events),
            *map(_move_incident, moves),
            *map(_wait_incident, waits),
            *notes,
        ]
    )


def capacity_incidents(run: RunRecord, events: Sequence[EventRecovery]) -> tuple[Incident, ...]:
    """Return the machine events, and the changes of the group that none of them explains, by time."""
    changes = group_changes(run)
    resumed_times = [change.resumed_at for change in changes]
    caused_changes = [_caused_changes(event, changes, resumed_times) for event in events]
    explained_changes = {change for caused in caused_changes for change in caused}
    return _by_time(
        [
            *(
                _machine_incident(run, event, caused)
                for event, caused in zip(events, caused_changes, strict=True)
            ),
            *(
                _group_incident(run, change)
                for change in changes
                if change not in explained_changes
            ),
        ]
    )


def _by_time(unordered: Iterable[Incident]) -> tuple[Incident, ...]:
    return tuple(sorted(unordered, key=lambda incident: incident.at))


def _caused_changes(
    event: EventRecovery, changes: Sequence[GroupChange], resumed_times: Sequence[float]
) -> Sequence[GroupChange]:
    """Return the change of the group that an event caused, if it caused one."""
    resumed_at = event.joined_at
    if event.kind not in ARRIVALS and event.seconds_to_next_step is not None:
        resumed_at = event.at + event.seconds_to_next_step
    if resumed_at is None:
        return ()
    index = bisect_right(resumed_times, resumed_at + 1e-3) - 1
    return (
        changes[index : index + 1]
        if index >= 0 and resumed_times[index] >= resumed_at - 1e-3
        else ()
    )


def _machine_incident(
    run: RunRecord, event: EventRecovery, changes: Sequence[GroupChange]
) -> Incident:
    effect = CapacityEffect.ARRIVAL if event.kind in ARRIVALS else CapacityEffect.NOTE
    cause = CAUSES.get(event.kind, "The machine recorded this event.")
    if event.kind in LOSSES:
        if run.worker_on(event.node, event.at) is not None:
            effect = CapacityEffect.LOSS
        else:
            cause = f"{cause.partition(';')[0].rstrip('.')}; no worker of the group ran there."
    is_waiting = event.seconds_to_next_step is None
    return Incident(
        at=event.at,
        effect=effect,
        kind=event.kind,
        subject=event.node,
        node=event.node,
        cause=cause,
        evidence=next((change.reason for change in changes if change.reason), ""),
        seconds_to_next_step=event.seconds_to_next_step,
        steps_lost=event.steps_lost,
        seconds_to_join=event.seconds_to_join,
        recovered=None if effect is CapacityEffect.NOTE else not is_waiting,
    )


def _group_incident(run: RunRecord, change: GroupChange) -> Incident:
    effect = (
        CapacityEffect.LOSS
        if change.lost_workers or change.departed_workers or change.recorded_loss
        else CapacityEffect.ARRIVAL
    )
    kind, cause = _change_text(change)
    departed = change.lost_workers | change.departed_workers
    nodes = {run.node_of(worker, change.at) for worker in departed} or {
        run.node_of(worker, change.resumed_at) for worker in change.joined_workers
    }
    return Incident(
        at=change.at,
        effect=effect,
        kind=kind,
        subject=_names(departed or change.joined_workers),
        node=nodes.pop() if len(nodes) == 1 else "",
        cause=cause,
        evidence=change.reason,
        seconds_to_next_step=change.resumed_at - change.at,
        recovered=True,
    )


def _change_text(change: GroupChange) -> tuple[str, str]:
    """Return kind and cause of a change that no machine event explains."""
    parts = [
        ("lost", change.lost_workers, "was lost without notice", "were lost without notice"),
        ("left", change.departed_workers, "left gracefully", "left gracefully"),
        ("joined", change.joined_workers, "joined", "joined"),
    ]
    named_parts = [
        (kind, names, singular, plural) for kind, names, singular, plural in parts if names
    ]
    if not named_parts:
        return "regroup", "The group formed again with the same workers."
    texts = (
        f"{_names(names)} {singular if len(names) == 1 else plural}"
        for _, names, singular, plural in named_parts
    )
    return named_parts[0][0], "; ".join(texts) + "."


def _names(workers: Set[str]) -> str:
    """Return names as text, at most three of them."""
    names = sorted(workers)
    return (
        ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:3])} and {len(names) - 3} more"
    )


def _move_incident(move: MoveCost) -> Incident:
    text = f"The controller moved the group from {move.origin} to {move.to}."
    cause = f"{text} It went back, since too few workers ran there." if move.abandoned else text
    return Incident(
        at=move.began,
        effect=CapacityEffect.NOTE,
        kind="move",
        subject=f"to {move.to}",
        node="",
        cause=cause,
        evidence=move.reason,
        seconds_to_next_step=move.seconds,
        steps_lost=move.steps_lost,
    )


def _wait_incident(wait: LongWait) -> Incident:
    waiting = "The other workers" if wait.nodes else "All workers"
    if wait.seconds is None:
        cause = f"{waiting} are waiting in step {wait.step}."
    else:
        cause = f"{waiting} waited {wait.seconds:.1f} s in step {wait.step}."
    if not wait.nodes:
        cause += " All of them had arrived: the network between them was slow."
    return Incident(
        at=wait.at,
        effect=CapacityEffect.NOTE,
        kind="slow node" if wait.nodes else "slow network",
        subject=", ".join(wait.nodes),
        node=wait.nodes[0] if len(wait.nodes) == 1 else "",
        cause=f"{cause} Then they aborted the group." if wait.lost else cause,
    )


def _note_incident(run: RunRecord, entry: JournalEntry) -> Incident:
    kind, cause = NOTES[entry.kind]
    values = {name: entry.values.get(name, "?") for name in ("step", "lines")}
    return Incident(
        at=entry.at,
        effect=CapacityEffect.NOTE,
        kind=kind,
        subject=entry.worker,
        node=run.node_of(entry.worker, entry.at),
        cause=cause.format(**values),
        evidence=str(entry.values.get("reason") or ""),
    )


def losses(all_incidents: Iterable[Incident]) -> Iterator[Incident]:
    """Yield the incidents that took capacity away."""
    return (incident for incident in all_incidents if incident.effect is CapacityEffect.LOSS)
