"""A spot market: a cloud's capacity for a pool over time.

Fitted to the statistics of published traces (`skypilot-org/spot-traces`: six traces of V100 spot
fleets, three of 16 machines and three of 4, 271 to 428 hours each, sampled every five minutes): 0.29
to 1.05 changes an hour, and 14 to 98 losses of the whole fleet in a trace. The traces have no
license, so none of their data is here.

The model has one variable, the capacity in machines. It changes at the times of a Poisson process, up
or down with equal chance where both are possible. A change affects all machines, as when a zone runs
out of capacity, or a few.

Pools of one zone, and zones of one region, lose capacity together: a part of a pool's changes affects all pools of
its zone, another part all pools of its region. The changes of each pool are a Poisson process as before, so that the
statistics of one pool do not depend on the parts that it shares.
"""

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass

HOUR_SECONDS = 3600.0

REGION_SHARE = 0.7
"""Share of a pool's changes that affect its whole region. With this share, three zones of a region with pools of 16
machines are without a machine at the same time for 4.4 % of the time; independent zones would be for 0.4 %. A model
with latent variables whose correlation is 0.59 gives 4.3 % for the same zones. That correlation fits the worst region
of the published two-month traces: its zones have no machine for 65, 64 and 37 % of the time, and no zone has one for
29 %.
"""

ZONE_SHARE = 0.2
"""Share of a pool's changes that affect its zone and not its region. Two pools of a zone then share nine tenths of
their changes: an assumption, because the traces have one pool in each zone."""


@dataclass(frozen=True, kw_only=True)
class MarketParameters:
    """The statistics of a market.

    Attributes:
        changes_per_hour: rate of changes; published: 0.29 to 1.05.
        total_loss_share: share of the losses that take all machines.
        total_return_share: share of the returns that restore full capacity.
        next_machine_chance: probability that a change affects one more machine.
        region_share: share of a pool's changes that all pools of its region have at the same time.
        zone_share: share of a pool's changes that only the pools of its zone have at the same time.
    """

    changes_per_hour: float = 0.6
    total_loss_share: float = 0.22
    total_return_share: float = 0.35
    next_machine_chance: float = 0.5
    region_share: float = REGION_SHARE
    zone_share: float = ZONE_SHARE

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range."""
        if self.changes_per_hour <= 0:
            raise ValueError(f"changes_per_hour={self.changes_per_hour} must be above 0")
        for name in (
            "total_loss_share", "total_return_share", "next_machine_chance", "region_share", "zone_share",
        ):  # fmt: skip
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} must be between 0 and 1")
        if self.next_machine_chance == 1:
            raise ValueError(
                "next_machine_chance=1 would make every change affect all machines; it must be below 1"
            )
        if self.region_share + self.zone_share > 1:
            raise ValueError(
                f"region_share={self.region_share} and zone_share={self.zone_share} exceed 1 together"
            )


@dataclass(frozen=True)
class CapacityChange:
    """A change of capacity.

    Attributes:
        at_seconds: seconds from the market's start, or from now in `MarketConfig.upcoming`, to the change.
        machines: capacity after the change.
    """

    at_seconds: float
    machines: int


@dataclass(frozen=True)
class MarketSeeds:
    """Seeds of the changes of one pool's market; pools that share a seed share its changes.

    Attributes:
        pool: seed of the pool's own changes.
        zone: seed of its zone's changes; empty without a zone.
        region: seed of its region's changes; empty without a region.
    """

    pool: str
    zone: str = ""
    region: str = ""


@dataclass(frozen=True, order=True)
class _Event:
    """The time of a change and the random numbers that decide it, each from 0 to 1.

    All pools that share an event decide with the same numbers. The change depends on the capacity of each pool.

    Attributes:
        at_seconds: seconds from the market's start.
        loss: decides whether machines are lost or return.
        total: decides whether all machines are lost or return.
        size: decides how many machines a partial change affects.
    """

    at_seconds: float
    loss: float
    total: float
    size: float


def changes(
    seeds: str | MarketSeeds, max_machines: int, parameters: MarketParameters | None = None
) -> Iterator[CapacityChange]:
    """Yield the endless changes of a market, beginning with full capacity at 0 s.

    Args:
        seeds: the market's seeds, which determine it; a string is the seed of a market that shares no change.
        max_machines: full capacity, at least 1.
        parameters: the market's statistics.
    """
    if max_machines < 1:
        raise ValueError(f"{max_machines=} must be at least 1")
    market = parameters or MarketParameters()
    machines = max_machines
    yield CapacityChange(0.0, machines)
    for event in _events(MarketSeeds(seeds) if isinstance(seeds, str) else seeds, market):
        machines = _next_capacity(machines, max_machines, market, event)
        yield CapacityChange(event.at_seconds, machines)


def _events(seeds: MarketSeeds, market: MarketParameters) -> Iterator[_Event]:
    """Yield the events of a pool, its zone and its region in order; their rates add up to the rate of the pool."""
    shares = {
        seeds.region: market.region_share if seeds.region else 0.0,
        seeds.zone: market.zone_share if seeds.zone else 0.0,
    }
    shares[seeds.pool] = 1 - sum(shares.values())
    sources = [
        _poisson(seed, market.changes_per_hour * share)
        for seed, share in shares.items()
        if share > 0
    ]
    return heapq.merge(*sources)


def _poisson(seed: str, rate: float) -> Iterator[_Event]:
    generator = random.Random(seed)  # noqa: S311 - a reproducible simulation
    at_seconds = 0.0
    while True:
        at_seconds += generator.expovariate(rate) * HOUR_SECONDS
        yield _Event(at_seconds, generator.random(), generator.random(), generator.random())


def _next_capacity(
    machines: int, max_machines: int, market: MarketParameters, event: _Event
) -> int:
    is_loss = machines == max_machines or (machines > 0 and event.loss < 0.5)
    max_change = machines if is_loss else max_machines - machines
    total_share = market.total_loss_share if is_loss else market.total_return_share
    change = max_change if event.total < total_share else _partial_change(max_change, market, event)
    return machines - change if is_loss else machines + change


def _partial_change(max_change: int, market: MarketParameters, event: _Event) -> int:
    """Return a geometrically distributed number of machines, at most `max_change`."""
    change, tail = 1, market.next_machine_chance
    while change < max_change and event.size < tail:
        change, tail = change + 1, tail * market.next_machine_chance
    return change


def capacity_at(
    seeds: str | MarketSeeds,
    max_machines: int,
    seconds: float,
    parameters: MarketParameters | None = None,
) -> int:
    """Return the capacity some seconds after a market's start.

    It is full before the start: the host's clock may be set back after a market is opened.
    """
    machines = max_machines
    for change in changes(seeds, max_machines, parameters):
        if change.at_seconds > seconds:
            break
        machines = change.machines
    return machines
