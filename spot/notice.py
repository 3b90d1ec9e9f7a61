"""What a cloud may announce about a machine, in the same words for both clouds."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Effect(IntEnum):
    """What will happen to the machine; the greater, the more urgent."""

    ADVICE = 0  # it may be taken sooner than others
    PAUSE = 1  # it stands still for some seconds and keeps its memory
    LEAVE = 2  # all that runs on it ends: it is taken, moved or restarted


@dataclass(frozen=True, kw_only=True)
class Notice:
    """One announcement.

    Attributes:
        cloud: `aws` or `azure`.
        reason: the cloud's own word: `terminate`, `Preempt`.
        effect: what will happen.
        deadline: when, in seconds since 1970; None where the cloud does not say.
        identifier: the cloud's name for it; empty where it has none.
        cloud_drains: whether the cloud promises to drain the node itself.
        may_start: whether the cloud waits for somebody to say that it may go ahead.
    """

    cloud: str
    reason: str
    effect: Effect
    deadline: float | None = None
    identifier: str = ""
    cloud_drains: bool = False
    may_start: bool = False


def most_urgent(notices: Iterable[Notice]) -> Notice | None:
    """Give the notice that decides: the gravest effect, of those the earliest; None without any."""
    return min(
        notices,
        key=lambda notice: (-notice.effect, notice.deadline or float("inf"), notice.identifier),
        default=None,
    )
