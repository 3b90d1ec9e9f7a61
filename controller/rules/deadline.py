"""Jobs with a limited run time."""

from controller.actions import Deletion, Plan
from controller.observed_state import ObservedState
from controller.rules.common import DEADLINE_PASSED, deadline_of, finish, make_plan, spec_of
from controller.status import ConditionType

DEADLINE_EXCEEDED = "DeadlineExceeded"  # reason of the condition Failed


def fail_at_deadline(state: ObservedState) -> Plan | None:
    """Fail a job that exceeds activeDeadlineSeconds and stop its workers."""
    spec = spec_of(state)
    deadline = deadline_of(state, spec)
    if deadline is None or deadline > state.now or state.suspended:
        return None
    seconds = spec.run_policy.active_deadline_seconds
    message = (
        f"the job has run for RunPolicy.activeDeadlineSeconds ({seconds} s) without finishing; "
        "create it again with a longer limit: training resumes from its newest checkpoint"
    )
    to_delete = tuple(Deletion(pod=pod, cause=DEADLINE_PASSED) for pod in state.active_pods)
    state = finish(state, ConditionType.FAILED, DEADLINE_EXCEEDED, message)
    return make_plan(state, delete_pods=to_delete)
