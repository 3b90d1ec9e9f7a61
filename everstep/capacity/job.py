"""The job for which a capacity history is replayed: its work, its prices, and the time lost to changes of its group."""

from collections.abc import Iterator
from dataclasses import dataclass

from everstep.catalog.units import HOUR_SECONDS
from everstep.goodput import ChangeCost, Design, assumptions, live_design

BOOT = ChangeCost(
    300.0,
    "assumed: from the request of a GPU machine on a cloud until its pod runs; not measured, because no cloud was used",
)
IDLE = ChangeCost(
    600.0,
    "default of cluster.autoscaling.scaleDownMinutes: the autoscaler keeps a machine without workers for this time",
)
MIN_BILLED_TIME = ChangeCost(60.0, "AWS bills Linux machines by the second, at least one minute")
STATE_BYTES = 204.7e6  # ResNet-50, as in docs/measurements.md
BYTES_PER_SECOND = 10e9 / 8
CHECKPOINT_SECONDS = 30.0
STEP_SECONDS = 0.5

LIVE = live_design(
    state_bytes=STATE_BYTES,
    step_seconds=STEP_SECONDS,
    bytes_per_second=BYTES_PER_SECOND,
    checkpoint_seconds=CHECKPOINT_SECONDS,
)
"""Times that changes cost in Everstep's `live` mode, as measured."""


@dataclass(frozen=True)
class Guaranteed:
    """Machines of a zone that do not depend on its spot market: on-demand pools and reservations.

    Attributes:
        machines: number of machines, which the group uses before spot machines.
        price: price of one of them in USD per hour.
    """

    machines: int = 0
    price: float = 0.0


@dataclass(frozen=True)
class Prices:
    """Prices in USD per hour.

    Attributes:
        spot: price of one spot machine; the highest price of all zones.
        on_demand: price of one on-demand machine.
        fixed: price of everything else that is billed while the job runs: control plane, storage, system nodes.
        unknown: names of the items of `fixed` without a known price, which make the true cost higher.
        spot_by_zone: price of one spot machine by position of the zone; empty if all zones have the same price.
        guaranteed_by_zone: guaranteed machines by position of the zone; empty if no zone has any.
    """

    spot: float
    on_demand: float
    fixed: float = 0.0
    unknown: tuple[str, ...] = ()
    spot_by_zone: tuple[float, ...] = ()
    guaranteed_by_zone: tuple[Guaranteed, ...] = ()

    def spot_in(self, zone: int) -> float:
        """Return the USD per hour of one spot machine in the zone at a position."""
        return self.spot_by_zone[zone] if self.spot_by_zone else self.spot

    def guaranteed_in(self, zone: int) -> Guaranteed:
        """Return the guaranteed machines in the zone at a position."""
        return self.guaranteed_by_zone[zone] if self.guaranteed_by_zone else Guaranteed()

    def usd_per_hour(self, zone: int, machines: int) -> float:
        """Return the USD per hour of a number of machines in a zone; guaranteed machines are used first."""
        guaranteed = self.guaranteed_in(zone)
        count = min(machines, guaranteed.machines)
        return count * guaranteed.price + (machines - count) * self.spot_in(zone)


@dataclass(frozen=True, kw_only=True)
class JobModel:
    """A training job.

    Attributes:
        work: machine-seconds of training that complete it.
        machines: desired number of machines.
        min_machines: minimum number of machines with which it trains.
        prices: prices of its machines.
        design: times that changes of the group cost.
        boot: time from a request until a new machine's pod runs.
        idle: time for which a machine is kept, and billed, after the group has left its zone.
        max_on_demand: maximum number of on-demand machines that the stack's pools allow; None without a limit.
    """

    work: float
    machines: int
    prices: Prices
    min_machines: int = 1
    design: Design = LIVE
    boot: ChangeCost = BOOT
    idle: ChangeCost = IDLE
    max_on_demand: int | None = None

    @property
    def start_seconds(self) -> float:
        """Time from the request of a machine until it trains."""
        return self.boot.seconds + self.design.start_up.seconds

    @property
    def shortest_seconds(self) -> float:
        """Duration with all machines from the beginning and no change."""
        return self.start_seconds + self.work / self.machines / self.steady_goodput

    @property
    def steady_goodput(self) -> float:
        """Share of the time that a group without changes spends on training; the rest is checkpoint stalls."""
        interval = self.design.checkpoint_seconds
        return interval / (interval + self.design.stall.seconds)

    def hourly_cost(self, zone_machines: int, on_demand: int, zone: int | None = None) -> float:
        """Return the cost in USD per hour with these machines.

        Args:
            zone_machines: machines of a zone, spot or guaranteed.
            on_demand: on-demand machines that are bought in addition.
            zone: position of the zone; None: spot machines at the highest price.
        """
        prices = self.prices
        zone_usd = (
            zone_machines * prices.spot
            if zone is None
            else prices.usd_per_hour(zone, zone_machines)
        )
        return zone_usd + on_demand * prices.on_demand + prices.fixed

    def assumptions(self) -> Iterator[str]:
        """Yield the times that changes cost, with their sources."""
        yield f"boot {self.boot.seconds:g} s: {self.boot.source}"
        yield f"idle {self.idle.seconds:g} s: {self.idle.source}"
        yield from assumptions(self.design)
        yield "machines are lost without notice"


def machine_hours(seconds: float) -> float:
    """Return machine-seconds as machine-hours."""
    return seconds / HOUR_SECONDS
