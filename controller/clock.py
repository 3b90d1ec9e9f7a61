"""Times as Kubernetes writes them: UTC, whole seconds."""

from datetime import UTC, datetime


def parse_time(text: str | None) -> datetime | None:
    """Return the moment in an RFC 3339 text; None for no text."""
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """Return a moment as Kubernetes writes it, fractions of a second cut off."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
