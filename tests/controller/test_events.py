"""The events of a pass."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from controller.events import _spending_events
from controller.spending_state import SpendingState
from tests.controller.builders import NOW, decide, failed_pod, job, job_after_pass, pod, spec

BEFORE = SpendingState(counted_at=NOW, deadline=NOW + timedelta(seconds=30))
AFTER = replace(BEFORE, counted_at=NOW + timedelta(seconds=60))


@pytest.mark.parametrize(("training_ended", "reasons"), [(None, ["DeadlineMissed"]), (NOW, [])])
def test_a_deadline_is_missed_only_by_a_training_that_has_not_ended(
    training_ended: datetime | None, reasons: list[str]
) -> None:
    """Other workers may still run when the first one has succeeded."""
    assert [event.reason for event in _spending_events(BEFORE, AFTER, training_ended)] == reasons


def test_a_deadline_is_missed_once() -> None:
    later = replace(AFTER, counted_at=NOW + timedelta(seconds=90))

    assert not _spending_events(AFTER, later, None)


def test_the_end_of_a_worker_is_reported_once_before_and_never_after_the_end_of_the_job() -> None:
    """A finished job does not change, so that each pass would report it again."""
    elastic_job = job(spec(3, policy="Never"))
    running_job = job_after_pass(elastic_job, decide(elastic_job, pod(0), pod(1), pod(2)))
    last_plan = decide(running_job, pod(0), failed_pod(1), pod(2))
    assert [event.reason for event in last_plan.events].count("WorkerEnded") == 1

    finished_job = job_after_pass(running_job, last_plan)

    assert decide(finished_job, failed_pod(1), failed_pod(2, 137)).events == ()
