"""The time that a node may take to leave its group.

The pod's grace period is an upper bound. When the cloud announces an interruption, the spot watcher
annotates the pod with the machine's deadline, which the downward API shows as a file.
"""

import math
import os
from datetime import datetime
from pathlib import Path

from everstep.catalog.names import DEADLINE_VARIABLE, GRACE_VARIABLE
from everstep.catalog.timing import EXIT_SECONDS, NODE_MARGIN_SECONDS
from everstep.errors import EverstepError

GRACE_SECONDS = 25.0
"""Time from SIGTERM to the end of this process; Kubernetes kills after terminationGracePeriodSeconds, 30 by default."""


def seconds_to_leave(grace_seconds: float, node_deadline: float | None, now: float) -> float:
    """Return the seconds that this node may take to leave.

    Args:
        grace_seconds: time from SIGTERM to the node's own deadline, ahead of SIGKILL.
        node_deadline: Unix time in seconds at which the machine stops; None if it is unknown. A
            deadline in the past belongs to a canceled interruption and is ignored.
        now: current Unix time in seconds.
    """
    if node_deadline is None or node_deadline <= now:
        return grace_seconds
    remaining = node_deadline - NODE_MARGIN_SECONDS - EXIT_SECONDS - now
    return max(0.0, min(grace_seconds, remaining))


def read_grace_seconds() -> float:
    """Return the seconds after SIGTERM within which this node must leave, from the environment.

    Raises:
        EverstepError: the variable is not a number of seconds.
    """
    configured = os.environ.get(GRACE_VARIABLE, str(GRACE_SECONDS))
    try:
        seconds = float(configured)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise EverstepError(
            f"{GRACE_VARIABLE} is {configured!r}, which is not a number of seconds",
            f"Set it to a number without a unit, such as {GRACE_VARIABLE}={GRACE_SECONDS:.0f}, or unset it.",
        )
    return seconds


def read_node_deadline() -> float | None:
    """Return the announced deadline, a Unix time in seconds; None if there is no valid deadline."""
    path = os.environ.get(DEADLINE_VARIABLE)
    try:
        text = Path(path).read_text(encoding="ascii").strip() if path else ""
        return datetime.fromisoformat(text).timestamp()
    except (OSError, ValueError):  # an empty file means that no interruption is announced
        return None
