"""A spot market: how many machines of a pool a cloud has room for, as it changes over the hours.

Fitted to the statistics of published traces (`skypilot-org/spot-traces`: six traces of V100 spot fleets, three of
16 machines and three of 4, 271 to 428 hours each, a look every five minutes): 0.29 to 1.05 changes an hour, and
the whole fleet gone 14 to 98 times in a trace. The traces carry no licence, so none of their data is here.

A model of one number: the room for machines. It changes at moments that follow a Poisson process. A change upwards
or downwards is as likely as the other; where there is no way up or no way down, it goes the other way. What goes
may be everything at once, as when a zone runs dry, and so may what returns; else a few machines do.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

HOUR_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """What a market is like.

    Attributes:
        changes_per_hour: how often the room changes; published: 0.29 to 1.05.
        sweep: the share of losses that take everything.
        flood: the share of returns that bring everything back.
        step: how likely one more machine goes, or comes, with those that do anyway.
    """

    changes_per_hour: float = 0.6
    sweep: float = 0.22
    flood: float = 0.35
    step: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no market."""
        if self.changes_per_hour <= 0:
            raise ValueError(f"{self.changes_per_hour=} must be above 0")
        for name in ("sweep", "flood", "step"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} is no share: 0 to 1")
        if self.step == 1:
            raise ValueError("step=1 would never stop counting")


@dataclass(frozen=True)
class Change:
    """From `at` seconds on there is room for `machines`."""

    at: float
    machines: int


def changes(seed: str, most: int, parameters: Parameters | None = None) -> Iterator[Change]:
    """Yield the changes of a market without end, the first with the whole room at 0 s.

    Args:
        seed: the same seed gives the same market.
        most: the room of a market that lacks nothing, at least 1.
        parameters: what the market is like.
    """
    if most < 1:
        raise ValueError(f"{most=} must be at least 1")
    like = parameters or Parameters()
    chance = random.Random(seed)  # noqa: S311 - a simulation, to be repeated at will
    at, machines = 0.0, most
    yield Change(at, machines)
    while True:
        at += chance.expovariate(like.changes_per_hour) * HOUR_SECONDS
        machines = _next(machines, most, like, chance)
        yield Change(at, machines)


def _next(machines: int, most: int, like: Parameters, chance: random.Random) -> int:
    down = machines == most or (machines > 0 and chance.random() < 0.5)
    room = machines if down else most - machines
    if chance.random() < (like.sweep if down else like.flood):
        moved = room
    else:
        moved = 1
        while moved < room and chance.random() < like.step:
            moved += 1
    return machines - moved if down else machines + moved


def room(seed: str, most: int, seconds: float, parameters: Parameters | None = None) -> int:
    """Return the room of a market so many seconds after it began."""
    until = takewhile(lambda change: change.at <= seconds, changes(seed, most, parameters))
    return list(until)[-1].machines
