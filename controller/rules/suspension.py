"""Suspended jobs."""

from dataclasses import replace

from controller.actions import Deletion, Plan
from controller.api import Spec
from controller.observed_state import ObservedState
from controller.rules.common import (
    BUDGET_USED_UP,
    NO_CAPACITY,
    accept_spec,
    make_plan,
    mark_created,
    reset_records,
    spec_of,
    with_validation_errors,
)
from controller.spending import used_up_message
from controller.status import ConditionType


def suspend(state: ObservedState) -> Plan | None:
    """Delete all pods of a job that is suspended or has 0 workers, and reset its records."""
    spec = spec_of(state)
    if not state.suspended:
        return None
    reason, message = _reason(state, spec)
    state = accept_spec(mark_created(state), spec)
    state = state.with_condition(
        ConditionType.RUNNING,
        is_true=False,
        reason=reason,
        message=with_validation_errors(state, message),
    )
    state = state.with_condition_cleared(ConditionType.FAILED, "SpecValid", "the spec is valid now")
    state = state.with_condition_cleared(ConditionType.RESTARTING, reason, message)
    state = state.with_condition(
        ConditionType.SUSPENDED, is_true=True, reason=reason, message=message
    )
    to_delete = tuple(
        Deletion(pod=pod, cause="the job is suspended")
        for pod in state.present_pods
        if not pod.terminating
    )
    state = replace(state, status=replace(state.status, start=None, workers={}), exits=())
    state = reset_records(state, state.pods)
    return make_plan(state, delete_pods=to_delete, delete_services=tuple(sorted(state.services)))


def _reason(state: ObservedState, spec: Spec) -> tuple[str, str]:
    """Return the reason and the message of the condition Suspended."""
    if spec.spending and state.status.spending and state.status.spending.used_up:
        return BUDGET_USED_UP, used_up_message(spec.spending)
    if spec.run_policy.suspend:
        return "ElasticJobSuspended", "RunPolicy.suspend is true"
    if state.status.scaling is None:
        return "ElasticJobSuspended", "replicaSpecs.Worker.replicas is 0"
    reason = state.status.scaling.reason
    return NO_CAPACITY, f"waiting for nodes: {reason}; the job resumes automatically when they join"
