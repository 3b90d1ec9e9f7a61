"""Jobs whose training has ended: at least one worker has succeeded."""

from dataclasses import replace
from datetime import timedelta

from controller.actions import Deletion, Plan
from controller.exit_history import REMOVED
from controller.observed_state import ObservedState
from controller.rules.common import (
    DEADLINE_PASSED,
    deadline_of,
    finish,
    make_plan,
    mark_created,
    reset_records,
    spec_of,
)
from controller.status import ConditionType
from everstep.catalog.plurals import amount

STARTING_SECONDS = 30  # time for a worker that is starting when the training ends


def complete(state: ObservedState) -> Plan | None:
    """Wait for the other workers of a job whose training has ended, and replace none of them.

    Workers end together; a worker that starts late finds the training finished and exits with 0. Pending
    workers without a node are deleted immediately, starting workers after some seconds.
    """
    finished_count = sum(record.succeeded for record in state.status.workers.values())
    if not finished_count:
        return None
    training_ended = state.status.training_ended or state.now
    state = replace(state, status=replace(state.status, training_ended=training_ended))
    due = training_ended + timedelta(seconds=STARTING_SECONDS)
    deadline = deadline_of(state, spec_of(state))
    starting_pods = [pod for pod in state.active_pods if pod.phase != "Running"]
    unneeded_pods = [pod for pod in starting_pods if pod.node is None or due <= state.now]
    other_pods = [pod for pod in state.present_pods if not pod.ended and pod not in unneeded_pods]
    state = reset_records(state, unneeded_pods)
    to_delete = [Deletion(pod=pod, cause="the training is over") for pod in unneeded_pods]
    if deadline is not None and deadline <= state.now:
        to_delete += [
            Deletion(pod=pod, cause=DEADLINE_PASSED) for pod in other_pods if not pod.terminating
        ]
    if other_pods:
        state = _with_waiting_condition(state, finished_count, len(other_pods))
        state = state.with_wake_times(due, deadline)
    else:
        message = _summary(state, finished_count)
        state = finish(state, ConditionType.SUCCEEDED, "ElasticJobSucceeded", message)
    return make_plan(state, delete_pods=tuple(to_delete))


def _with_waiting_condition(
    state: ObservedState, finished_count: int, other_count: int
) -> ObservedState:
    """Return the state of a job that waits for its other workers."""
    message = (
        f"{amount(finished_count, 'worker')} finished; waiting for {amount(other_count, 'other')}"
    )
    state = mark_created(state).with_condition(
        ConditionType.RUNNING, is_true=True, reason="ElasticJobRunning", message=message
    )
    return state.with_condition_cleared(ConditionType.RESTARTING, "TrainingEnded", message)


def _summary(state: ObservedState, finished_count: int) -> str:
    """Return how many workers finished and how many did not."""
    records = [record for record in state.status.workers.values() if record.cause != REMOVED]
    other_count = len(records) - finished_count
    summary = f"{amount(finished_count, 'worker')} finished the training"
    return f"{summary}; {amount(other_count, 'other')} did not finish" if other_count else summary
