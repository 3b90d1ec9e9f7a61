"""Values as text, the same in all sections of the page."""

from datetime import UTC, datetime

from everstep.cli.durations import clock
from everstep.cli.report.incidents import Incident
from everstep.cli.report.page.markup import Html, element

UNKNOWN = "—"


def percent(share: float | None) -> str:
    """Return a share in percent."""
    return UNKNOWN if share is None else f"{share:.1%}"


LONG_SECONDS = 600
"""Duration from which hours and minutes read better than seconds."""


def seconds_text(value: float | None) -> str:
    """Return a duration, in seconds unless it is long."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f} s" if value < LONG_SECONDS else clock(value)


def event_label(incident: Incident, start: float) -> str:
    """Return an incident as one line of text."""
    parts = [f"{clock(incident.at - start)} {incident.kind} {incident.subject}".strip()]
    if incident.recovered is False:
        parts.append("no step since")
    elif incident.seconds_to_next_step is not None:
        parts.append(f"next step after {seconds_text(incident.seconds_to_next_step)}")
    return ": ".join(parts)


def utc(time: float) -> Html:
    """Return a time as an element with its machine-readable form."""
    try:
        utc_time = datetime.fromtimestamp(time, UTC)
    except (ValueError, OverflowError, OSError):  # the time of a wrong clock
        return element("span", UNKNOWN)
    return element("time", utc_time.strftime("%Y-%m-%d %H:%M UTC"), datetime=utc_time.isoformat())
