"""Messages about pools that do not reach their desired state in time."""

from pathlib import Path

import pytest
from cloudtwin.capacity.control_plane import _reached, _timeout_error


@pytest.mark.parametrize(
    ("machines", "ready", "stale", "desired", "text"),
    [
        (2, 1, 0, 3, "has 1 of 3 machines Ready"),
        (2, 2, 1, 2, "has 2 of 2 machines Ready; 1 of its machines with another release"),
        (1, 1, 0, 0, "still has 1 machine, 1 more than desired"),
        (5, 5, 0, 3, "still has 5 machines, 2 more than desired"),
    ],
    ids=["too few Ready", "an earlier release", "deleted", "too many"],
)
def test_the_message_says_how_a_pool_differs_from_its_desired_state(
    machines: int, ready: int, stale: int, desired: int, text: str
) -> None:
    assert _reached(machines, ready, stale, desired) == text


def test_the_message_has_the_time_and_the_log_of_the_daemon(tmp_path: Path) -> None:
    message = str(_timeout_error(tmp_path, "cluster/pool", "has 1 of 3 machines Ready", 120.0))

    assert "After 120 s the pool 'cluster/pool' has 1 of 3 machines Ready." in message
    assert str(tmp_path) in message
