"""Interruption notices, in one form for both clouds."""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from spot.http import HttpResponse


class Effect(IntEnum):
    """Effect of an announced event on the machine, in ascending severity."""

    ADVICE = 0  # an interruption has become more likely
    PAUSE = 1  # the machine freezes for some seconds and keeps its memory
    STOP = 2  # all processes end: the machine is reclaimed, moved or restarted


@dataclass(frozen=True, kw_only=True)
class Notice:
    """An announced event.

    Attributes:
        cloud: `aws` or `azure`.
        reason: the cloud's own term: `terminate`, `Preempt`.
        effect: effect on the machine.
        deadline: time of the effect, Unix time; None if the effect has begun or may begin at any moment.
        identifier: ID of the event in the cloud; empty if it has none.
        cloud_drains: True if the cloud promises to drain the node.
        may_start: True if the cloud starts the event early on request.
    """

    cloud: str
    reason: str
    effect: Effect
    deadline: float | None = None
    identifier: str = ""
    cloud_drains: bool = False
    may_start: bool = False


def most_urgent(notices: Iterable[Notice]) -> Notice | None:
    """Return the earliest of the most severe notices, without a deadline first; None if there is none."""
    return min(
        notices,
        key=lambda notice: (
            -notice.effect,
            -math.inf if notice.deadline is None else notice.deadline,
            notice.identifier,
        ),
        default=None,
    )


def read_object(response: HttpResponse) -> dict[str, Any] | None:
    """Return the JSON object in a successful response; None if there is none."""
    try:
        body = json.loads(response.body) if response.status == 200 else None
    except ValueError:
        return None
    return body if isinstance(body, dict) else None
