"""Deadlines as users write them: a duration such as 24h, or a time such as 2026-12-24T18:00:00Z."""

import re
from datetime import datetime

UNIT_SECONDS = {"m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_SECONDS = 90 * UNIT_SECONDS["d"]
"""Longest deadline: capacity histories of twice that time still fit into memory."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([mhd])")


def duration_seconds(text: str) -> float | None:
    """Return a duration in seconds; None if the text is not a positive number with a unit, or is too long."""
    match = _DURATION.fullmatch(text.strip())
    seconds = float(match[1]) * UNIT_SECONDS[match[2]] if match else 0.0
    return seconds if 0 < seconds <= MAX_SECONDS else None


def parse_time(text: str) -> datetime | None:
    """Return a time with a time zone; None if the text is not one."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return time if time.tzinfo else None


def seconds_left(text: str, now: datetime) -> float | None:
    """Return the seconds until the deadline of a job that begins now; None if the text is not a duration or a time."""
    if (seconds := duration_seconds(text)) is not None:
        return seconds
    time = parse_time(text)
    return None if time is None else (time - now).total_seconds()
