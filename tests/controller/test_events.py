"""Events of a job with a deadline."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from controller.events import _spending_events
from controller.spending_state import SpendingState
from tests.controller.builders import NOW

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
