"""The loop in which tests wait for a condition, on a clock that only its pauses advance."""

import inspect

import pytest

from tests import waiting
from tests.waiting import wait_until
from twin.tests import waiting as waiting_of_twin


class Clock:
    """A replacement for the module `time`; pauses advance it and take no time."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of the wait."""
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def refuse_details() -> str:
    raise RuntimeError("the wait has succeeded and needs no details")


def test_the_first_true_value_is_returned_and_the_details_are_not_evaluated(clock: Clock) -> None:
    values = iter([None, "", 0, "value", "later value"])

    result = wait_until(
        lambda: next(values), "there is a value", 60, details=refuse_details, interval_seconds=2
    )

    assert result == "value"
    assert clock.now == 106, "three pauses"


def test_a_failure_shows_the_limit_the_description_and_the_details_at_that_time(
    clock: Clock,
) -> None:
    with pytest.raises(AssertionError) as failure:
        wait_until(
            lambda: False,
            "etcd responds",
            2.0,
            details=lambda: f"log at {clock.now:g} s",
            interval_seconds=0.5,
        )

    assert str(failure.value) == "not within 2 s: etcd responds\nlog at 102 s"


def test_a_condition_is_checked_once_if_there_is_no_time(clock: Clock) -> None:
    checks = []

    with pytest.raises(AssertionError, match="not within 0 s"):
        wait_until(lambda: checks.append(clock.now), "something is checked", 0)

    assert checks == [100]
    assert wait_until(lambda: "value", "it holds", 0) == "value"


def test_a_condition_that_holds_after_the_last_pause_is_met(clock: Clock) -> None:
    result = wait_until(lambda: clock.now > 103, "it holds", 3, interval_seconds=2)

    assert result
    assert clock.now == 104, "the last pause ends after the limit"


def test_an_exception_in_the_condition_ends_the_wait(clock: Clock) -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0, "it holds", 60)

    assert clock.now == 100


def test_the_copy_in_the_tests_of_the_twin_is_the_same() -> None:
    assert inspect.getsource(waiting_of_twin.wait_until) == inspect.getsource(wait_until)
