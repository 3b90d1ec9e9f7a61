"""Jobs that never had a valid spec."""

from controller.actions import Plan
from controller.observed_state import ObservedState
from controller.rules.common import INVALID_SPEC, mark_created
from controller.status import ConditionType


def fail_invalid_spec(state: ObservedState) -> Plan | None:
    """Fail a job without a valid spec; a corrected spec starts it, since nothing has run yet."""
    if state.job.spec is not None:
        return None
    message = "; ".join(state.job.validation_errors)
    state = mark_created(state).with_condition(
        ConditionType.FAILED, is_true=True, reason=INVALID_SPEC, message=message
    )
    state = state.with_condition(
        ConditionType.RUNNING, is_true=False, reason=INVALID_SPEC, message="there is nothing to run"
    )
    return Plan(status=state.status)
