"""Rules for jobs that are being deleted or have finished."""

from dataclasses import replace
from datetime import timedelta

from controller.actions import Deletion, Plan
from controller.api import CleanPodPolicy, Spec
from controller.objects import Pod
from controller.observed_state import ObservedState
from controller.rules.common import DEADLINE_PASSED, has_finished
from controller.rules.deadline import DEADLINE_EXCEEDED
from controller.status import ConditionType


def leave_to_garbage_collector(state: ObservedState) -> Plan | None:
    """Do nothing for a job that is being deleted: the garbage collector deletes its pods."""
    return Plan(status=state.job.status) if state.job.terminating else None


def clean_up(state: ObservedState) -> Plan | None:
    """Delete the objects of a finished job that its policies select, and the job itself after its time to live."""
    if not has_finished(state.job.status):
        return None
    status = replace(
        state.job.status, active=len(state.running_pods), observed_generation=state.job.generation
    )
    spec, completion = state.job.spec, state.job.status.completion
    if spec is None or completion is None:
        return Plan(status=status)
    to_delete = state.lost_pod_deletions() + _policy_deletions(state, spec)
    names = {deletion.pod.name for deletion in to_delete}
    delete_all = spec.run_policy.clean_pod_policy is CleanPodPolicy.ALL
    ttl, due = spec.run_policy.ttl_seconds_after_finished, None
    if ttl is not None:
        due = completion + timedelta(seconds=ttl)
    return Plan(
        status=status,
        delete_pods=to_delete,
        delete_services=tuple(sorted(state.services if delete_all else state.services & names)),
        delete_job=due is not None and due <= state.now,
        requeue_at=state.with_wake_times(due).next_wake_time(),
    )


def _policy_deletions(state: ObservedState, spec: Spec) -> tuple[Deletion, ...]:
    """Return the deletions of cleanPodPolicy, and of pods that stop in any case."""
    causes = {pod: _deletion_cause(state, spec, pod) for pod in state.present_pods}
    return tuple(
        Deletion(pod=pod, cause=cause)
        for pod, cause in causes.items()
        if cause and not pod.terminating
    )


def _deletion_cause(state: ObservedState, spec: Spec, pod: Pod) -> str:
    """Return the cause for which a pod of a finished job is deleted; empty if it stays.

    After DeadlineExceeded, all workers stop. A worker that has not started has no log, and would occupy or request a
    machine.
    """
    policy = spec.run_policy.clean_pod_policy
    failed = state.status.condition(ConditionType.FAILED)
    exceeded = failed is not None and failed.is_true and failed.reason == DEADLINE_EXCEEDED
    runs = pod.lingering or not pod.ended
    if policy is CleanPodPolicy.ALL or (policy is CleanPodPolicy.RUNNING and runs):
        return f"the job has finished and its cleanPodPolicy is {policy}"
    if exceeded and runs:
        return DEADLINE_PASSED
    return "the job finished before the pod started" if pod.phase == "Pending" else ""
