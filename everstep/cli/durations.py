"""Durations as text."""


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, with hours if there are any."""
    total_seconds = max(round(seconds), 0)
    minutes, remainder = divmod(total_seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{remainder:02}" if hours else f"{minutes}:{remainder:02}"
