"""Table rows with the controller's report on a job's zone, deadline and budget.

A status may lack any of it: jobs in one zone have no placement, and older controllers write less.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from everstep.catalog.plurals import amount


def job_state(status: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the names and values of a job's status; values change only with the controller's decisions."""
    return (*_zone(status), *_spending(status))


def _zone(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    placement = status.get("placement") or {}
    if zone := placement.get("zone"):
        state, reason = placement.get("state"), placement.get("reason")
        zone_and_state = ", ".join(str(part) for part in (zone, state) if part)
        yield "zone", f"{zone_and_state}: {reason}" if reason else zone_and_state


def _spending(status: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the deadline, the number of on-demand workers and a used-up budget, if the job has them."""
    spending = status.get("spending") or {}
    if deadline := spending.get("deadline"):
        yield "deadline", str(deadline)
    if workers := spending.get("onDemand"):
        uses_spot = spending.get("useSpot", True)
        spot_text = "in addition to spot machines" if uses_spot else "and none on spot"
        yield "on demand", f"{amount(workers, 'worker')}, {spot_text}"
    if spending.get("usedUp"):
        yield "budget", "used up: the job is suspended with a checkpoint"
