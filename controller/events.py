"""The Kubernetes events that a change of a job's status causes."""

from controller.actions import Event
from controller.observed_state import ObservedState
from controller.rules.common import INVALID_SPEC, count
from controller.scaling import ScalingState
from controller.status import ConditionType, Status


def condition_events(state: ObservedState, status: Status) -> tuple[Event, ...]:
    """Return an event for each new exit, fault, scaling decision and condition that became True."""
    old = state.job.status
    events = [
        Event(reason="WorkerEnded", message=worker_exit.message, warning=True)
        for worker_exit in state.exits
        if status is not old
    ]
    if state.job.faults and state.job.generation != old.observed_generation:
        faults = "; ".join(state.job.faults)
        events.append(Event(reason=INVALID_SPEC, message=faults, warning=True))
    events += _scaling_events(old.scaling, status.scaling)
    for condition in status.conditions:
        kind = ConditionType(condition.type)
        if condition.is_true and not old.is_true(kind):
            warning = kind in (ConditionType.FAILED, ConditionType.RESTARTING)
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
    message = f"{count(new.desired, 'worker')} desired instead of {previous}: {new.reason}"
    return [Event(reason="Scaled", message=message)]
