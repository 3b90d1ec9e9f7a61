"""Changes of the status and parts of the plan that several rules share."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from controller.actions import Deletion, Event, Plan
from controller.api import Spec
from controller.exit_history import REMOVED, WorkerRecord
from controller.objects import Pod
from controller.observed_state import ObservedState
from controller.status import ConditionType, Status

INVALID_SPEC = "InvalidSpec"
NO_CAPACITY = "NoCapacity"
BUDGET_USED_UP = "BudgetUsedUp"
DEADLINE_PASSED = "the job's deadline has passed"  # reason for deletions


def has_finished(status: Status) -> bool:
    """Return True if a job has Succeeded or Failed permanently."""
    failed = status.condition(ConditionType.FAILED)
    return status.is_true(ConditionType.SUCCEEDED) or (
        failed is not None and failed.is_true and failed.reason != INVALID_SPEC
    )


def spec_of(state: ObservedState) -> Spec:
    """Return the spec to act on."""
    assert state.job.spec is not None, "fail_invalid_spec comes first"  # noqa: S101  (a bug, not invalid input)
    return state.job.spec


def deadline_of(state: ObservedState, spec: Spec) -> datetime | None:
    """Return the time at which the job exceeds activeDeadlineSeconds; None without a limit or before its start."""
    seconds, start = spec.run_policy.active_deadline_seconds, state.status.start
    return None if seconds is None or start is None else start + timedelta(seconds=seconds)


def with_validation_errors(state: ObservedState, message: str) -> str:
    """Return a message, with the errors of the newest spec appended if it has any."""
    if not state.job.validation_errors:
        return message
    errors = "; ".join(state.job.validation_errors)
    return f"{message}; the newest spec is invalid, so the previous one stays in effect: {errors}"


def mark_created(state: ObservedState) -> ObservedState:
    """Return the state with the condition Created."""
    return state.with_condition(
        ConditionType.CREATED,
        is_true=True,
        reason="ElasticJobCreated",
        message="the controller has observed the job",
    )


def accept_spec(state: ObservedState, spec: Spec) -> ObservedState:
    """Return the state with the spec recorded as the last valid one."""
    if state.job.validation_errors:
        return state
    return replace(state, status=replace(state.status, last_valid_spec=spec.source))


def finish(state: ObservedState, kind: ConditionType, reason: str, message: str) -> ObservedState:
    """Return the state of a job that has finished as Succeeded or Failed."""
    state = mark_created(state).with_condition(kind, is_true=True, reason=reason, message=message)
    state = state.with_condition(
        ConditionType.RUNNING, is_true=False, reason=reason, message="the job has finished"
    )
    state = state.with_condition_cleared(ConditionType.RESTARTING, reason, "the job has finished")
    return replace(state, status=replace(state.status, completion=state.now))


def reset_records(state: ObservedState, pods: Iterable[Pod]) -> ObservedState:
    """Return the state with new records for the workers of removed pods, so that their exits do not count."""
    records = dict(state.status.workers)
    records |= {pod.index: WorkerRecord(pod=pod.uid, ended=True, cause=REMOVED) for pod in pods}
    return replace(state, status=replace(state.status, workers=records))


def make_plan(
    state: ObservedState,
    *,
    create_pods: tuple[int, ...] = (),
    create_on_demand: frozenset[int] = frozenset(),
    delete_pods: tuple[Deletion, ...] = (),
    create_services: tuple[int, ...] = (),
    delete_services: tuple[str, ...] = (),
    update_bounds: tuple[Pod, ...] = (),
    events: tuple[Event, ...] = (),
) -> Plan:
    """Return the plan of a job that has a spec, with its workers counted in the status.

    Pods on lost nodes are deleted in any case.
    """
    records = state.status.workers.values()
    status = replace(
        state.status,
        active=len(state.running_pods),
        succeeded=sum(record.succeeded for record in records),
        failed=sum(pod.phase == "Failed" and not pod.terminating for pod in state.present_pods),
    )
    return Plan(
        status=status,
        create_pods=create_pods,
        create_on_demand=create_on_demand,
        delete_pods=(*state.lost_pod_deletions(), *delete_pods),
        create_services=create_services,
        delete_services=delete_services,
        update_bounds=update_bounds,
        events=events,
        exits=state.exits,
        requeue_at=state.next_wake_time(),
    )
