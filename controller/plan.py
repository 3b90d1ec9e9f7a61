"""The plan of one reconcile pass: the first rule that applies returns it.

Pure: all inputs, including the time, are arguments; `reconcile` reads the API server and applies
the plan. Every pass starts from the observed state, so that a lost event, a crash or a second
controller costs time but never correctness.
"""

from collections.abc import Callable
from dataclasses import replace

from controller.actions import Plan
from controller.events import condition_events
from controller.observed_state import ObservedState
from controller.rules.backoff_limit import fail_at_backoff_limit
from controller.rules.completion import complete
from controller.rules.deadline import fail_at_deadline
from controller.rules.finished import clean_up, leave_to_garbage_collector
from controller.rules.invalid_spec import fail_invalid_spec
from controller.rules.placement import with_placement
from controller.rules.suspension import suspend
from controller.rules.workers import reconcile_workers

RULES: tuple[Callable[[ObservedState], Plan | None], ...] = (
    leave_to_garbage_collector,
    clean_up,
    fail_invalid_spec,
    complete,
    fail_at_deadline,
    suspend,
    fail_at_backoff_limit,
    reconcile_workers,
)


def plan(state: ObservedState) -> Plan:
    """Return the plan of one reconcile pass."""
    new_plan = next(candidate for rule in RULES if (candidate := rule(state)) is not None)
    if state.job.terminating:
        return new_plan  # a placeholder created now would block the job's deletion
    new_plan = with_placement(state, new_plan)
    return replace(new_plan, events=(*condition_events(state, new_plan), *new_plan.events))
