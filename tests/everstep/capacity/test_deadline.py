"""Deadlines as users write them."""

from datetime import UTC, datetime, timedelta

import pytest

from everstep.capacity.deadline import duration_seconds, parse_time, seconds_left

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("24h", 86400), ("1.5d", 129600), (" 1h ", 3600)]
)
def test_a_duration_is_a_number_with_a_unit(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds
    assert seconds_left(text, NOW) == seconds


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "0h", "91d", "1h30m", "1w", "2026-01-01"])
def test_any_other_text_is_not_a_duration(text: str) -> None:
    assert duration_seconds(text) is None
    assert seconds_left(text, NOW) is None


def test_a_time_without_a_time_zone_is_not_accepted() -> None:
    assert parse_time("2026-01-02T00:00:00Z") == NOW + timedelta(days=1)
    assert seconds_left("2026-01-01T01:00:00+02:00", NOW) == -3600
    assert parse_time("2026-01-02T00:00:00") is None
    assert parse_time("soon") is None
