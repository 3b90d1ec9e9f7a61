"""Durations as text."""


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, with hours if there are any."""
    total_seconds = max(round(seconds), 0)
    minutes, rest = divmod(total_seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
