"""How many workers a job is to have where it follows the capacity of spot machines: a policy with hysteresis.

Pure. The scheduler is the judge of what fits: a worker that it could not place for some time is
wanted no longer. The look at the nodes only says when to try again, for a scheduler says nothing of
room that nobody asked for. What it cannot see (another namespace's pods, a volume of one zone, a
quota) makes a try fail, and each failure doubles the wait before the next. Room that is not
there yet must be asked for all the same, now and then: a cluster autoscaler buys machines only for
pods that wait.

The spec's own `replicas` is left alone: it belongs to whoever declared the job, and a number that
the controller wrote there would be undone by the next `pulumi up`. What is wanted now stands in the
job's status, and is all that is remembered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from controller.clock import format_time, parse_time

ANNOTATION = "everstep.dev/scaling"  # on the ElasticJob; upstream's schema lets it be


class Scaling(StrEnum):
    """Who decides how many workers a job has: its spec, or the machines that are there."""

    FIXED = "fixed"
    CAPACITY = "capacity"


class Trial(StrEnum):
    """Why the number was last raised, while it is not known yet whether the workers find a place."""

    NONE = ""
    ROOM = "room"
    ASK = "ask"


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long things must have been so before the number of workers follows.

    Attributes:
        down_seconds: a worker that waits for a machine for so long is wanted no longer. Longer than
            the scheduler and the autoscaler take to notice it; a machine that comes after that is
            seen as room.
        up_seconds: there must have been room for so long before a worker is added.
        ask_seconds: with fewer workers than may be, one more is tried this often without any sign
            of room, and at most so long lies between two tries where room seems to be.
    """

    down_seconds: float = 120.0
    up_seconds: float = 10.0
    ask_seconds: float = 300.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the spec says: between `least` and `most` workers, `replicas` of them to begin with."""

    replicas: int
    least: int
    most: int


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What there is.

    Attributes:
        placed: workers that have a machine.
        waiting: since when each of the others' pods has waited for one.
        room: more workers that the machines could take.
    """

    placed: int
    waiting: tuple[datetime, ...]
    room: int


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What one pass leaves to the next.

    Attributes:
        wanted: workers wanted now; 0 sets the job aside until there is room.
        since: when that last changed.
        replicas: the spec's number that was last taken up; another one there is an edit.
        reason: why so many are wanted, for people.
        room_since: since when there has been room for more without a pause; None: there is none.
        trial: what the last raise counted on, until its workers have found a place or not.
        disappointments: raises in a row that counted on room and found none.
    """

    wanted: int
    since: datetime
    replicas: int
    reason: str = ""
    room_since: datetime | None = None
    trial: Trial = Trial.NONE
    disappointments: int = 0

    @classmethod
    def read(cls, source: Mapping[str, Any] | None) -> "Memory | None":
        """Read it from the JSON in a job's status; None where there is none."""
        since = parse_time((source or {}).get("since"))
        if not source or since is None:
            return None
        return cls(
            wanted=source["wanted"],
            since=since,
            replicas=source["replicas"],
            reason=source.get("reason", ""),
            room_since=parse_time(source.get("roomSince")),
            trial=Trial(source.get("trial", "")),
            disappointments=source.get("disappointments", 0),
        )

    def write(self) -> dict[str, Any]:
        """Return its JSON, without what is nothing."""
        optional = {
            "reason": self.reason,
            "roomSince": format_time(self.room_since) if self.room_since else None,
            "trial": str(self.trial),
            "disappointments": self.disappointments,
        }
        fixed = {
            "wanted": self.wanted, "since": format_time(self.since), "replicas": self.replicas,
        }  # fmt: skip
        return fixed | {key: value for key, value in optional.items() if value}


def follow(
    asked: Asked, seen: Capacity, memory: Memory | None, now: datetime, patience: Patience
) -> tuple[Memory, datetime | None]:
    """Decide how many workers are wanted now; return that, and when it may change by itself.

    The number is 0 or from `least` to `most`. An edit of the spec counts at once; fewer machines
    count once a worker has waited for one in vain, more once the room has stayed.
    """
    known = _judged(_edited(asked, memory, now), seen)
    known = (
        _lowered(known, asked, seen, now, patience)
        or _raised(known, asked, seen, now, patience)
        or known
    )
    known = replace(known, room_since=_room_since(known, asked, seen, now))
    return known, _wake(known, asked, seen, now, patience)


def _edited(asked: Asked, memory: Memory | None, now: datetime) -> Memory:
    """Take up what the spec says anew; a bound counts at once, where the job is not set aside."""
    wanted = asked.replicas if memory is None else memory.wanted
    reason = f"the spec asks for {asked.replicas}"
    if memory is not None and memory.replicas == asked.replicas:
        reason = f"the spec allows {asked.least} to {asked.most}"
    elif memory is not None:
        wanted = asked.replicas
    if wanted:
        wanted = min(max(wanted, asked.least), asked.most)
    if memory is not None and wanted == memory.wanted:
        return replace(memory, replicas=asked.replicas)
    return Memory(wanted=wanted, since=now, replicas=asked.replicas, reason=reason)


def _judged(known: Memory, seen: Capacity) -> Memory:
    """End a trial that came out well: every worker has a machine."""
    if known.trial is Trial.NONE or seen.placed < known.wanted:
        return known
    return replace(known, trial=Trial.NONE, disappointments=0)


def _lowered(
    known: Memory, asked: Asked, seen: Capacity, now: datetime, patience: Patience
) -> Memory | None:
    """Want those no longer who found no machine; nobody, where too few are left to train. None: all did."""
    overdue = now - timedelta(seconds=patience.down_seconds)
    stuck = sum(since <= overdue for since in seen.waiting)
    # Whoever has a machine stays wanted: an edit may have left fewer wanted than there are pods.
    left = max(known.wanted - stuck, min(seen.placed, known.wanted))
    if left == known.wanted:
        return None
    reason = f"{known.wanted - left} of {known.wanted} found no machine"
    if left < asked.least:
        left, reason = 0, f"{reason}, and {asked.least} are needed to train"
    return replace(
        known,
        wanted=left,
        since=now,
        reason=reason,
        trial=Trial.NONE,
        disappointments=known.disappointments + (known.trial is Trial.ROOM),
    )


def _raised(
    known: Memory, asked: Asked, seen: Capacity, now: datetime, patience: Patience
) -> Memory | None:
    """Want more where room has stayed, or where it is time to ask; None: neither is so."""
    room_since = _room_since(known, asked, seen, now)
    if room_since is not None and room_since + _pause(known, patience) <= now:
        wanted = min(seen.placed + seen.room, asked.most)
        return replace(
            known, wanted=wanted, since=now, trial=Trial.ROOM, reason=f"there is room for {wanted}"
        )
    if _asks(known, asked, seen) and known.since + timedelta(seconds=patience.ask_seconds) <= now:
        wanted = max(known.wanted + 1, asked.least)
        reason = f"{known.wanted} had a machine, and it is time to ask for more"
        return replace(known, wanted=wanted, since=now, trial=Trial.ASK, reason=reason)
    return None


def _room_since(known: Memory, asked: Asked, seen: Capacity, now: datetime) -> datetime | None:
    """Return since when more could train than are wanted; None where they could not."""
    possible = min(seen.placed + seen.room, asked.most)
    if possible <= known.wanted or possible < asked.least:
        return None
    return known.room_since or now


def _asks(known: Memory, asked: Asked, seen: Capacity) -> bool:
    """Whether more may be asked for: a worker that waits is asking already."""
    return known.wanted < asked.most and not seen.waiting


def _pause(known: Memory, patience: Patience) -> timedelta:
    """Return how long room must stay: each try that failed doubles it."""
    longest = max(patience.ask_seconds, patience.up_seconds)
    return timedelta(
        seconds=min(patience.up_seconds * 2.0 ** min(known.disappointments, 30), longest)
    )


def _wake(
    known: Memory, asked: Asked, seen: Capacity, now: datetime, patience: Patience
) -> datetime | None:
    """Return the first moment after now at which time alone changes the number."""
    moments = [since + timedelta(seconds=patience.down_seconds) for since in seen.waiting]
    if known.room_since is not None:
        moments.append(known.room_since + _pause(known, patience))
    if _asks(known, asked, seen):
        moments.append(known.since + timedelta(seconds=patience.ask_seconds))
    return min((moment for moment in moments if moment > now), default=None)
