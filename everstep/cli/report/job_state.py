"""What the controller says about a job's zone, deadline and budget, as rows for people.

A status may lack any of it: jobs in one zone have no placement, and older controllers write less.
"""

from collections.abc import Iterator, Mapping
from typing import Any


def job_state(status: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return names and values of what a job's status says; values change only with the controller's decisions."""
    return tuple(_zone(status))


def _zone(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    placement = status.get("placement") or {}
    if zone := placement.get("zone"):
        state, reason = placement.get("state", ""), placement.get("reason", "")
        yield "zone", ": ".join(filter(None, (f"{zone}, {state}", str(reason))))
