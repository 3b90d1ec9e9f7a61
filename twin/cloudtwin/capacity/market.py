"""A spot market: a cloud's capacity for a pool over time.

Fitted to the statistics of published traces (`skypilot-org/spot-traces`: six traces of V100 spot
fleets, three of 16 machines and three of 4, 271 to 428 hours each, sampled every five minutes): 0.29
to 1.05 changes an hour, and the whole fleet lost 14 to 98 times in a trace. The traces have no
licence, so none of their data is here.

The model has one variable, the capacity in machines. It changes at the times of a Poisson process, up
or down with equal chance where both are possible. A change affects all machines, as when a zone runs
out of capacity, or a few.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

HOUR_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class MarketParameters:
    """The statistics of a market.

    Attributes:
        changes_per_hour: rate of changes; published: 0.29 to 1.05.
        total_loss_share: share of the losses that take all machines.
        total_return_share: share of the returns that restore full capacity.
        next_machine_chance: probability that a change affects one more machine.
    """

    changes_per_hour: float = 0.6
    total_loss_share: float = 0.22
    total_return_share: float = 0.35
    next_machine_chance: float = 0.5

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range."""
        if self.changes_per_hour <= 0:
            raise ValueError(f"{self.changes_per_hour=} must be above 0")
        for name in ("total_loss_share", "total_return_share", "next_machine_chance"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must be between 0 and 1")
        if self.next_machine_chance == 1:
            raise ValueError("next_machine_chance=1 would never end; it must be below 1")


@dataclass(frozen=True)
class CapacityChange:
    """A change of capacity.

    Attributes:
        at_seconds: time of the change, in seconds.
        machines: capacity after the change.
    """

    at_seconds: float
    machines: int


def changes(
    seed: str, max_machines: int, parameters: MarketParameters | None = None
) -> Iterator[CapacityChange]:
    """Yield the endless changes of a market, beginning with full capacity at 0 s.

    Args:
        seed: the same seed gives the same market.
        max_machines: full capacity, at least 1.
        parameters: the market's statistics.
    """
    if max_machines < 1:
        raise ValueError(f"{max_machines=} must be at least 1")
    market = parameters or MarketParameters()
    generator = random.Random(seed)  # noqa: S311 - a reproducible simulation
    at_seconds, machines = 0.0, max_machines
    yield CapacityChange(at_seconds, machines)
    while True:
        at_seconds += generator.expovariate(market.changes_per_hour) * HOUR_SECONDS
        machines = _next_capacity(machines, max_machines, market, generator)
        yield CapacityChange(at_seconds, machines)


def _next_capacity(
    machines: int, max_machines: int, market: MarketParameters, generator: random.Random
) -> int:
    is_loss = machines == max_machines or (machines > 0 and generator.random() < 0.5)
    max_change = machines if is_loss else max_machines - machines
    if generator.random() < (market.total_loss_share if is_loss else market.total_return_share):
        change = max_change
    else:
        change = 1
        while change < max_change and generator.random() < market.next_machine_chance:
            change += 1
    return machines - change if is_loss else machines + change


def capacity_at(
    seed: str, max_machines: int, seconds: float, parameters: MarketParameters | None = None
) -> int:
    """Return the capacity some seconds after a market's start."""
    past_changes = takewhile(
        lambda change: change.at_seconds <= seconds, changes(seed, max_machines, parameters)
    )
    return list(past_changes)[-1].machines
