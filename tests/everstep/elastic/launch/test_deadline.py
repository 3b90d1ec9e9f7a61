"""Time limits of a leaving node."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.catalog.names import DEADLINE_VARIABLE, GRACE_VARIABLE
from everstep.catalog.timing import EXIT_SECONDS, NODE_MARGIN_SECONDS
from everstep.elastic.launch.deadline import (
    read_grace_seconds,
    read_node_deadline,
    seconds_to_leave,
)
from everstep.errors import EverstepError

NOW = 1_795_249_200.0


@pytest.mark.parametrize("text", ["", "25s", "-1", "nan", "inf"])
def test_a_grace_period_that_is_not_a_number_of_seconds_is_an_error_with_a_fix(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A traceback at SIGTERM would end the node before it has left its group."""
    monkeypatch.setenv(GRACE_VARIABLE, text)

    with pytest.raises(EverstepError, match="EVERSTEP_GRACE_SECONDS is") as error:
        read_grace_seconds()

    assert repr(text) in error.value.problem
    assert "EVERSTEP_GRACE_SECONDS=25" in error.value.fix


@given(
    grace_seconds=st.floats(0, 600),
    remaining=st.none() | st.floats(-600, 600),
)
def test_a_node_leaves_within_its_grace_period_and_before_the_machine_stops(
    grace_seconds: float, remaining: float | None
) -> None:
    deadline = None if remaining is None else NOW + remaining

    seconds = seconds_to_leave(grace_seconds, deadline, NOW)

    assert 0 <= seconds <= grace_seconds
    if deadline is None or deadline <= NOW:
        assert seconds == grace_seconds, "without a current deadline the grace period decides"
    elif seconds > 0:
        assert NOW + seconds + EXIT_SECONDS + NODE_MARGIN_SECONDS <= deadline + 1e-6


def test_a_node_drained_20_s_into_the_notice_of_aws_has_93_s_to_leave() -> None:
    evicted_at = NOW + 20

    assert seconds_to_leave(105, NOW + 120, evicted_at) == 93, "SIGKILL comes 98 s after SIGTERM"


def test_the_deadline_is_read_from_the_file_of_the_downward_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "deadline"
    monkeypatch.setenv(DEADLINE_VARIABLE, str(file))

    assert read_node_deadline() is None, "the file may be missing"
    for content in ("", "soon"):
        file.write_text(content, encoding="ascii")
        assert read_node_deadline() is None
    file.write_text("2026-11-21T08:20:30Z", encoding="ascii")
    assert read_node_deadline() == datetime(2026, 11, 21, 8, 20, 30, tzinfo=UTC).timestamp()


def test_without_the_downward_api_there_is_no_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DEADLINE_VARIABLE, raising=False)

    assert read_node_deadline() is None
