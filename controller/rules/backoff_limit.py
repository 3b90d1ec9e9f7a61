"""Jobs with workers that fail repeatedly.

A single faulty node does not end a job: a worker that exceeds the limit is left out and tried again,
preferably on another node and after a growing delay, while others run. The job fails when no other worker can make
progress or, with the restart policy `Never`, when the first worker fails.
"""

from collections.abc import Mapping

from controller.actions import Plan
from controller.api import RestartPolicy, Spec
from controller.exit_history import REMOVED, WorkerRecord
from controller.objects import Pod
from controller.observed_state import ObservedState
from controller.rules.common import finish, make_plan, spec_of
from controller.status import ConditionType
from everstep.catalog.names import WORKER_CONTAINER
from everstep.catalog.plurals import amount


def fail_at_backoff_limit(state: ObservedState) -> Plan | None:
    """Fail a job if workers exceed backoffLimit and no other worker can make progress, or none may be replaced."""
    spec = spec_of(state)
    exhausted = exhausted_workers(state, spec)
    if not exhausted:
        return None
    if spec.restart_policy is not RestartPolicy.NEVER and _others_can_progress(state, exhausted):
        return None
    index, description = next(iter(exhausted.items()))
    return _fail(state, spec, index, description)


def exhausted_workers(state: ObservedState, spec: Spec) -> Mapping[int, str]:
    """Return the index and a description of each worker that exceeds backoffLimit."""
    limit, descriptions = spec.backoff_limit, dict[int, str]()
    for index, record in sorted(state.status.workers.items()):
        if record.ended and record.failures > limit and record.cause != REMOVED:
            failures = amount(record.failures, "consecutive failure")
            descriptions[index] = f"exited with code {record.exit_code}, {failures}"
    for pod in state.present_pods:
        if (
            spec.restart_policy in (RestartPolicy.ON_FAILURE, RestartPolicy.ALWAYS)
            and pod.crash_looping
            and not state.predates_edit(pod)
            and pod.restarts > limit
        ):
            descriptions[pod.index] = (
                f"exited with code {pod.exit_code}, restarted {pod.restarts} times"
            )
    return descriptions


def _others_can_progress(state: ObservedState, exhausted: Mapping[int, str]) -> bool:
    """Return True if another worker runs, or has run and is being replaced.

    A pod that never had a node does not count: it may wait endlessly for capacity.
    """
    pods = {pod.index: pod for pod in state.present_pods}
    others = {*pods, *state.status.workers} - set(exhausted)
    return any(_can_progress(pods.get(index), state.status.workers.get(index)) for index in others)


def _can_progress(pod: Pod | None, record: WorkerRecord | None) -> bool:
    if record and record.cause == REMOVED:
        return False
    if pod and not pod.ended and pod.node:
        return True
    return record is not None and record.restarts > 0 and not record.succeeded


def _fail(state: ObservedState, spec: Spec, index: int, description: str) -> Plan:
    """Return the plan of a job that fails because of an exhausted worker."""
    message = describe_exhausted(state, spec, index, description)
    if spec.restart_policy is not RestartPolicy.NEVER:
        message += "; no other worker makes progress"
    return make_plan(finish(state, ConditionType.FAILED, "BackoffLimitExceeded", message))


def describe_exhausted(state: ObservedState, spec: Spec, index: int, description: str) -> str:
    """Return the worker that exceeds the limit, and the command that shows its log, as text."""
    name = state.job.worker_name(index)
    pods = (pod for pod in state.present_pods if pod.index == index and pod.init_container)
    container = next((pod.init_container for pod in pods), WORKER_CONTAINER)
    limit = (
        "no worker is replaced (restartPolicy is Never)"
        if spec.restart_policy is RestartPolicy.NEVER
        else f"the limit is {spec.backoff_limit} (RunPolicy.backoffLimit)"
    )
    return (
        f"{name} {description}, and {limit}; "
        f"its log: kubectl logs --namespace {state.job.namespace} {name} "
        f"--container {container}"
    )
