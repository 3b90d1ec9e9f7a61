"""The zone of a job's workers: its condition, and its placeholders in other zones."""

from dataclasses import replace

from controller.actions import PlaceholderRequest, Plan
from controller.observed_state import ObservedState
from controller.placeholders import placeholder_name
from controller.rules.common import has_finished
from controller.status import ConditionType, Status
from everstep.capacity.placement import PlacementPhase


def with_placement(state: ObservedState, plan: Plan) -> Plan:
    """Return a plan with the condition of the job's zone and with its placeholders.

    A job that has finished, is suspended by its owner or its budget, or no longer has zones requests nothing.
    """
    desired = state.placement.placeholders if state.placement else {}
    if has_finished(plan.status):
        desired = {}
    names = {
        placeholder_name(state.job.name, zone, number): PlaceholderRequest(zone=zone, number=number)
        for zone, machines in desired.items()
        for number in range(machines)
    }
    existing = {pod.name for pod in state.placeholders}
    return replace(
        plan,
        status=_with_condition(state, plan.status),
        create_placeholders=tuple(
            request for name, request in names.items() if name not in existing
        ),
        delete_placeholders=tuple(
            pod for pod in state.placeholders if pod.name not in names or pod.ended
        ),
    )


def _with_condition(state: ObservedState, status: Status) -> Status:
    """Return a status with the condition Placed, if the zone of the job was decided in this pass.

    Placed is the first condition, since readers of the list interpret the last condition as the job's phase.
    """
    if state.placement is None or status.placement is None or has_finished(status):
        return status
    status = status.with_condition(
        ConditionType.PLACED,
        is_true=status.placement.state is PlacementPhase.SETTLED,
        reason=status.placement.state.capitalize(),
        message=f"{status.placement.zone}: {status.placement.reason}",
        now=state.now,
    )
    conditions = sorted(
        status.conditions, key=lambda condition: condition.type != ConditionType.PLACED
    )
    return replace(status, conditions=tuple(conditions))
