"""Jobs whose training has ended: at least one worker has succeeded."""

from dataclasses import replace
from datetime import timedelta

from controller.actions import Deletion, Plan
from controller.objects import Pod
from controller.observed_state import ObservedState
from controller.rules.common import (
    REMOVED,
    count,
    deadline_of,
    finish,
    make_plan,
    mark_created,
    reset_records,
    spec_of,
)
from controller.status import ConditionType

STARTING_SECONDS = 30  # time for a worker that is starting when the training ends


def complete(state: ObservedState) -> Plan | None:
    """Wait for the other workers of a training that has ended, and replace none.

    Workers end together; a worker that starts late finds the training finished and exits with 0. Pending
    workers without a node are deleted immediately, starting ones after some seconds.
    """
    finished = sum(record.succeeded for record in state.status.workers.values())
    if not finished:
        return None
    training_ended = state.status.training_ended or state.now
    state = replace(state, status=replace(state.status, training_ended=training_ended))
    due = training_ended + timedelta(seconds=STARTING_SECONDS)
    deadline = deadline_of(state, spec_of(state))
    starting = [pod for pod in state.active if pod.phase != "Running"]
    unneeded = [pod for pod in starting if pod.node is None or due <= state.now]
    remaining = [pod for pod in state.present if not pod.ended and pod not in unneeded]
    state = reset_records(state, unneeded)
    to_delete = [Deletion(pod=pod, reason="the training is over") for pod in unneeded]
    if deadline is not None and deadline <= state.now:
        to_delete += [
            Deletion(pod=pod, reason="the job's deadline has passed")
            for pod in remaining
            if not pod.terminating
        ]
    if remaining:
        state = _with_waiting_condition(state, finished, remaining).waking_at(due, deadline)
    else:
        message = _summary(state, finished)
        state = finish(state, ConditionType.SUCCEEDED, "ElasticJobSucceeded", message)
    return make_plan(state, delete_pods=tuple(to_delete))


def _with_waiting_condition(
    state: ObservedState, finished: int, remaining: list[Pod]
) -> ObservedState:
    """Return the state of a job that waits for its remaining workers."""
    message = f"{count(finished, 'worker')} finished; waiting for {count(len(remaining), 'other')}"
    state = mark_created(state).with_condition(
        ConditionType.RUNNING, is_true=True, reason="ElasticJobRunning", message=message
    )
    return state.with_condition_cleared(ConditionType.RESTARTING, "TrainingEnded", message)


def _summary(state: ObservedState, finished: int) -> str:
    """Return how many workers finished and how many did not."""
    records = [record for record in state.status.workers.values() if record.cause != REMOVED]
    others = len(records) - finished
    summary = f"{count(finished, 'worker')} finished the training"
    return f"{summary}; {count(others, 'other')} did not finish" if others else summary
