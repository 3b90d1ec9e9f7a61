"""Times in the format of Kubernetes: UTC, whole seconds."""

from datetime import UTC, datetime


def parse_time(text: str | None) -> datetime | None:
    """Return the time in an RFC 3339 text; None for an empty text."""
    if not text:
        return None
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def format_time(time: datetime) -> str:
    """Return a time in the format of Kubernetes, without fractions of a second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
