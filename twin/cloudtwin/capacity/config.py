"""The speed of time in a twin's cloud, and its spot market.

By default time passes at its normal speed, and there is no market: every pool gets its machines.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from cloudtwin import files
from cloudtwin.capacity import market, prices
from cloudtwin.capacity.market import HOUR_SECONDS, CapacityChange, MarketParameters, MarketSeeds
from cloudtwin.capacity.pools import Pool
from cloudtwin.capacity.trace import Trace
from cloudtwin.errors import TwinError
from cloudtwin.nodes.model import Cloud

# Seconds between a cloud's notice and the interruption; on Azure the guaranteed minimum.
NOTICE_SECONDS: dict[Cloud, float] = {"aws": 120.0, "azure": 30.0, "": 0.0}


@dataclass(frozen=True)
class PriceChange:
    """The spot price of an hour.

    Attributes:
        at_seconds: seconds from now until the hour begins.
        price: USD per hour of one machine.
    """

    at_seconds: float
    price: float


@dataclass(frozen=True, kw_only=True)
class MarketConfig:
    """The configuration of time and market.

    Attributes:
        time_factor: simulated seconds per real second.
        seed: the market's seed; empty without a market.
        opened_at: the market's start, in seconds since the epoch.
        parameters: the market's statistics.
        trace: recorded capacity that is replayed in place of a market with a seed; no zones: no replay.
    """

    time_factor: float = 1.0
    seed: str = ""
    opened_at: float = 0.0
    parameters: MarketParameters = field(default_factory=MarketParameters)
    trace: Trace = field(default_factory=Trace)

    @classmethod
    def load(cls, state: Path) -> "MarketConfig":
        """Return the configuration of a twin."""
        return cls.parse(files.read_json(_path(state)) or {})

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "MarketConfig":
        """Return the configuration of a JSON object; absent keys have their defaults.

        Raises:
            TypeError, ValueError: the object is not a configuration.
        """
        document = dict(document)
        parameters = MarketParameters(**document.pop("parameters", {}))
        trace = Trace(**document.pop("trace", {}))
        return cls(**document, parameters=parameters, trace=trace)

    def at_speed(self, factor: float, now: float) -> "MarketConfig":
        """Return the configuration with another speed of time, at the same moment of an open market."""
        opened_at = now - self._cloud_seconds(now) / factor if self.is_open else self.opened_at
        return replace(self, time_factor=factor, opened_at=opened_at)

    @property
    def is_open(self) -> bool:
        """True if there is a market, with a seed or with recorded capacity."""
        return bool(self.seed or self.trace.machines)

    def notice_seconds(self, cloud: Cloud) -> float:
        """Return the seconds between notice and interruption, in the twin's time."""
        return NOTICE_SECONDS[cloud] / self.time_factor

    def capacity(self, pool: Pool, now: float) -> int | None:
        """Return the market's capacity for a pool; None for a pool without a market."""
        if not self._has_market(pool):
            return None
        seconds = self._cloud_seconds(now)
        if self.trace.machines:
            return self.trace.capacity_at(pool, seconds)
        return market.capacity_at(self._seeds_of(pool), pool.max_size, seconds, self.parameters)

    def available(self, pool: Pool, now: float) -> int | None:
        """Return the capacity for a pool, 0 if its price is above its maximum price; None without a limit."""
        too_expensive = prices.exceeds_max_price(pool, self.price(pool, now))
        return 0 if too_expensive else self.capacity(pool, now)

    def price(self, pool: Pool, now: float) -> float | None:
        """Return the current price of a spot machine of a pool in USD per hour; None as in `prices.spot_price`."""
        return prices.spot_price(pool, self.seed, self._cloud_seconds(now))

    def upcoming_prices(self, pool: Pool, now: float, hours: int) -> Iterator[PriceChange]:
        """Yield the prices of the next full hours of the market, with seconds from now in the twin's time."""
        first = int(self._cloud_seconds(now) // HOUR_SECONDS) + 1
        for hour in range(first, first + hours) if self.seed else ():
            if (price := prices.spot_price(pool, self.seed, hour * HOUR_SECONDS)) is not None:
                seconds = self.opened_at + hour * HOUR_SECONDS / self.time_factor - now
                yield PriceChange(seconds, price)

    def upcoming(self, pool: Pool, now: float) -> Iterator[CapacityChange]:
        """Yield the market's future changes of a pool, with seconds from now in the twin's time."""
        if not self._has_market(pool):
            return
        for change in self._changes(pool):
            seconds = self.opened_at + change.at_seconds / self.time_factor - now
            if seconds > 0:
                yield CapacityChange(seconds, change.machines)

    def _changes(self, pool: Pool) -> Iterator[CapacityChange]:
        if self.trace.machines:
            return self.trace.changes(pool)
        return market.changes(self._seeds_of(pool), pool.max_size, self.parameters)

    def _cloud_seconds(self, now: float) -> float:
        """Return the time since the market's start, in the cloud's time."""
        return (now - self.opened_at) * self.time_factor

    def _has_market(self, pool: Pool) -> bool:
        if pool.capacity != "spot" or pool.max_size <= 0:
            return False
        return self.trace.describes(pool) if self.trace.machines else bool(self.seed)

    def _seeds_of(self, pool: Pool) -> MarketSeeds:
        return MarketSeeds(
            f"{self.seed}/{pool.name}",
            f"{self.seed}/zone {pool.zone}" if pool.zone else "",
            f"{self.seed}/region {pool.region}" if pool.region else "",
        )


def compress_time(state: Path, factor: float) -> None:
    """Set the speed of time: notices, idle times and the market become shorter by the factor.

    An open market continues at the moment of the cloud that it has reached: only what follows is faster or slower.

    Raises:
        TwinError: the factor is not positive and finite.
    """
    _check_factor(factor)
    _change(state, lambda config: config.at_speed(factor, time.time()))


def open_market(
    state: Path,
    seed: str,
    parameters: MarketParameters | None = None,
    time_factor: float | None = None,
) -> None:
    """Open a spot market with full capacity. The same seed gives the same market.

    Args:
        state: the twin's folder.
        seed: the market's seed.
        parameters: the market's statistics.
        time_factor: new speed of time; None keeps the current speed.

    Raises:
        TwinError: the seed is empty, or the factor is not positive and finite; then nothing is changed.
    """
    _check_factor(time_factor)
    if not seed:
        raise TwinError(
            "A market needs a seed.", "Choose any word; the same word gives the same market."
        )
    _change(
        state,
        lambda config: MarketConfig(
            time_factor=time_factor or config.time_factor,
            seed=seed,
            opened_at=time.time(),
            parameters=parameters or MarketParameters(),
        ),
    )


def replay_market(state: Path, trace: Trace, time_factor: float | None = None) -> None:
    """Open a market that replays recorded capacity, from its beginning.

    Args:
        state: the twin's folder.
        trace: the recorded capacity.
        time_factor: new speed of time; None keeps the current speed.

    Raises:
        TwinError: the factor is not positive and finite.
    """
    _check_factor(time_factor)
    _change(
        state,
        lambda config: MarketConfig(
            time_factor=time_factor or config.time_factor, opened_at=time.time(), trace=trace
        ),
    )


def close_market(state: Path) -> None:
    """Close the market: every pool gets its machines again."""
    _change(state, lambda config: MarketConfig(time_factor=config.time_factor))


def _check_factor(factor: float | None) -> None:
    if factor is not None and not 0 < factor < math.inf:
        raise TwinError(f"The time factor cannot be {factor:g}.", "Set a finite factor above 0.")


def _path(state: Path) -> Path:
    return state / "cloud" / "market.json"


def _change(state: Path, change: Callable[[MarketConfig], MarketConfig]) -> None:
    """Replace the configuration of a twin; simultaneous changes are all kept."""
    files.change_json(
        _path(state),
        lambda document: document.update(asdict(change(MarketConfig.parse(document)))),
    )
