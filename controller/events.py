"""The Kubernetes events that a change of a job's status causes."""

from datetime import datetime

from controller.actions import Event, Plan
from controller.observed_state import ObservedState
from controller.placement_state import PlacementState
from controller.rules.common import BUDGET_USED_UP, INVALID_SPEC
from controller.scaling import ScalingState
from controller.spending_state import SpendingState
from controller.status import ConditionType
from controller.timestamps import format_time
from everstep.capacity.placement import PlacementPhase
from everstep.catalog.metrics import WORKER_STEPS
from everstep.catalog.names import PLACEMENT_ANNOTATION
from everstep.catalog.plurals import amount

STATE_EVENTS = {
    PlacementPhase.SETTLED: "ZoneSettled",
    PlacementPhase.SHORT: "ZoneShort",
    PlacementPhase.SEARCHING: "ZonesSearched",
    PlacementPhase.MOVING: "MoveBegan",
}


def condition_events(state: ObservedState, plan: Plan) -> tuple[Event, ...]:
    """Return an event for each new exit, validation error, decision and condition that became True."""
    old, status = state.job.status, plan.status
    events = [
        Event(reason="WorkerEnded", message=worker_exit.message, warning=True)
        for worker_exit in plan.exits  # not state.exits: a finished job records no exit
    ]
    if state.job.validation_errors and state.job.generation != old.observed_generation:
        errors = "; ".join(state.job.validation_errors)
        events.append(Event(reason=INVALID_SPEC, message=errors, warning=True))
    events += _scaling_events(old.scaling, status.scaling)
    events += _placement_events(old.placement, status.placement)
    events += _spending_events(old.spending, status.spending, status.training_ended)
    for condition in status.conditions:
        if condition.type not in list(ConditionType):  # of another program, or a newer controller
            continue
        kind = ConditionType(condition.type)
        if condition.is_true and not old.is_true(kind) and kind is not ConditionType.PLACED:
            warning = kind in (ConditionType.FAILED, ConditionType.RESTARTING)
            warning = warning or condition.reason == BUDGET_USED_UP
            events.append(
                Event(reason=condition.reason, message=condition.message, warning=warning)
            )
    return tuple(events)


def _scaling_events(old: ScalingState | None, new: ScalingState | None) -> list[Event]:
    if new is None or new == old:
        return []
    previous = old.desired if old else new.replicas
    if new.desired == previous:
        return []
    message = f"{amount(new.desired, 'worker')} desired instead of {previous}: {new.reason}"
    return [Event(reason="Scaled", message=message)]


def _spending_events(
    old: SpendingState | None, new: SpendingState | None, training_ended: datetime | None
) -> list[Event]:
    """Return the events of a changed number of on-demand workers and of a deadline that the training has missed."""
    if new is None or new == old:
        return []
    events, before = [], old.on_demand if old else 0
    if new.on_demand != before:
        reason = "OnDemandBought" if new.on_demand > before else "OnDemandReleased"
        text = f"{amount(new.on_demand, 'on-demand worker')} instead of {before}: {new.reason}"
        events.append(Event(reason=reason, message=text))
    deadline = new.deadline if old and training_ended is None else None
    if old and deadline and old.counted_at < deadline <= new.counted_at:
        text = (
            f"the deadline of {format_time(deadline)} has passed, and the training is not complete"
        )
        events.append(Event(reason="DeadlineMissed", message=text, warning=True))
    return events


def _placement_events(old: PlacementState | None, new: PlacementState | None) -> list[Event]:
    """Return the events of a changed zone or state, of a move that ended, and of workers that did not join in time."""
    if new is None or new == old:
        return []
    events = _unjoined_events(old, new)
    last_move = new.moves[-1] if new.moves and new.move is None else None
    if last_move and old and old.move:
        seconds = ((last_move.ended or last_move.began) - last_move.began).total_seconds()
        direction = f"from {last_move.origin} to {last_move.destination}"
        text = f"moved {direction} in {seconds:.0f} s: {last_move.reason}"
        if last_move.abandoned:
            text = f"gave up the move {direction} after {seconds:.0f} s: too few workers ran there"
        reason = "MoveAbandoned" if last_move.abandoned else "Moved"
        events.append(Event(reason=reason, message=text, warning=last_move.abandoned))
    if old is None or (new.state, new.zone) != (old.state, old.zone):
        reason, message = STATE_EVENTS[new.state], f"{new.zone}: {new.reason}"
        events.append(Event(reason=reason, message=message))
    return events


def _unjoined_events(old: PlacementState | None, new: PlacementState) -> list[Event]:
    """Return the event of a move that continued without the workers of the new zone that had not joined."""
    move, previous_move = new.move, old.move if old else None
    if move is None or not move.unjoined or (previous_move and previous_move.unjoined):
        return []
    text = (
        f"{amount(move.unjoined, 'worker')} in {move.destination} did not complete a step in time: the workers of "
        f"{move.origin} leave, and the group resumes from its checkpoint if none has joined; read the log of the new "
        f"workers, or raise joinSeconds in the annotation {PLACEMENT_ANNOTATION} if they need longer. For a program "
        f"that does not export {WORKER_STEPS.name}, the controller always waits that long"
    )
    return [Event(reason="WorkersNotJoined", message=text, warning=True)]
