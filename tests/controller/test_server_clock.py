"""The controller's time is the API server's if the clocks differ."""

from datetime import timedelta

import pytest

from controller.server_clock import ServerClock
from tests.controller.builders import NOW

NOON = "Thu, 01 Jan 2026 12:00:00 GMT"


@pytest.mark.parametrize("seconds", [-3600, -120, 6, 120])
def test_a_clock_that_differs_is_corrected(seconds: float) -> None:
    clock = ServerClock(lambda: NOW + timedelta(seconds=seconds))

    clock.correct(NOON)

    assert clock.now() == NOW


@pytest.mark.parametrize("seconds", [-5, 0, 5])
def test_the_resolution_of_the_header_and_the_time_of_a_response_do_not_move_the_clock(
    seconds: float,
) -> None:
    clock = ServerClock(lambda: NOW + timedelta(seconds=seconds))

    clock.correct(NOON)

    assert clock.now() == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize("header", [None, "", "noon", "Thu, 01 Jan 2026 12:00:00 -0000"])
def test_a_response_without_a_time_has_no_effect(header: str | None) -> None:
    clock = ServerClock(lambda: NOW)

    clock.correct(header)

    assert clock.now() == NOW
