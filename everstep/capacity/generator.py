"""Synthetic capacity histories with the statistics of published spot traces.

Each zone has a latent surplus of supply over demand, a standard normal variable. No machine is available while
it is below a threshold, all of them while it is above the threshold by a margin, and some in between. The
surplus has a part that all zones share and a part that only the zone has. Each part is a sum of a slow renewal
process (regimes of a day) and a fast one (fluctuations of an hour): a value from a normal distribution is kept for
an exponentially distributed time, then drawn again.

So the threshold follows from the share of the time without a machine, the margin from the mean, and the weight
of the shared part from the share of the time in which no zone has a machine: `fit` solves for the three exactly.
The two time scales were chosen so that the best zone changes as often as in the published traces.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, exp, pi, sqrt
from statistics import NormalDist

from everstep.capacity.history import CapacityHistory
from everstep.catalog.units import HOUR_SECONDS

NORMAL = NormalDist()
GAP_SECONDS = 300.0  # sampling interval of the published traces


@dataclass(frozen=True)
class ZoneStatistics:
    """Published statistics of one zone.

    Attributes:
        mean_share: mean capacity, as a share of the desired machines.
        none_share: share of the time without a machine.
    """

    mean_share: float
    none_share: float


@dataclass(frozen=True, kw_only=True)
class MarketStatistics:
    """Published statistics of several zones together.

    Attributes:
        zones: statistics of each zone.
        none_anywhere: share of the time without a machine in any zone.
        source: their source.
    """

    zones: tuple[ZoneStatistics, ...]
    none_anywhere: float
    source: str


PUBLISHED = MarketStatistics(
    zones=(
        ZoneStatistics(5.4 / 16, 0.65),
        ZoneStatistics(5.5 / 16, 0.64),
        ZoneStatistics(8.8 / 16, 0.37),
    ),
    none_anywhere=0.13,
    source="three traces of 16 V100 spot machines, AWS us-east-2b, us-west-2a and us-west-2c, from 2023-08-27, "
    "11 to 16 days: skypilot-org/spot-traces",
)
"""Statistics only: the traces have no license, so none of their data is here."""


@dataclass(frozen=True)
class ZoneModel:
    """Model of one zone.

    Attributes:
        threshold: surplus below which no machine is available.
        margin: distance above the threshold from which all machines are available.
        loading: weight of the shared part of the surplus, -1 to 1.
    """

    threshold: float
    margin: float
    loading: float


@dataclass(frozen=True, kw_only=True)
class MarketModel:
    """Model of several zones.

    Attributes:
        zones: model of each zone.
        regime_hours: mean hours until the slow process draws a new value.
        fluctuation_hours: mean hours until the fast process draws a new value.
        regime_share: share of the slow process in the variance of the surplus.
    """

    zones: tuple[ZoneModel, ...]
    regime_hours: float = 24.0
    fluctuation_hours: float = 0.8
    regime_share: float = 0.93


def fit(statistics: MarketStatistics = PUBLISHED, machines: int = 16) -> MarketModel:
    """Return the model whose expected statistics equal `statistics`.

    Args:
        statistics: statistics to fit.
        machines: number of machines of the fleet that the statistics describe.
    """
    thresholds = [NORMAL.inv_cdf(zone.none_share) for zone in statistics.zones]
    margins = [
        _margin(threshold, zone.mean_share, machines)
        for threshold, zone in zip(thresholds, statistics.zones, strict=True)
    ]
    correlation = _solve(
        lambda value: -_probability_of_none(thresholds, loadings(value, len(thresholds))),
        -statistics.none_anywhere,
        -0.95,
        0.95,
    )
    return market_model(thresholds, margins, correlation)


def market_model(
    thresholds: Sequence[float], margins: Sequence[float], correlation: float
) -> MarketModel:
    """Return the model with these thresholds, margins and this correlation of the zones."""
    parameters = zip(thresholds, margins, loadings(correlation, len(thresholds)), strict=True)
    return MarketModel(zones=tuple(ZoneModel(*zone) for zone in parameters))


def loadings(correlation: float, zones: int) -> list[float]:
    """Return the weights of the shared part that give a correlation between the zones.

    One shared part cannot make three zones negatively correlated with each other. With a negative correlation, only
    the last zone is negatively correlated with the others, like a zone of another region.
    """
    weight = sqrt(abs(correlation))
    return [-weight if correlation < 0 and zone == zones - 1 else weight for zone in range(zones)]


def _margin(threshold: float, mean_share: float, machines: int) -> float:
    """Return the margin above a threshold for which the mean capacity is the given share of the machines."""
    return _solve(lambda margin: _mean_share(threshold, margin, machines), mean_share, 0, 20)


def _mean_share(threshold: float, margin: float, machines: int) -> float:
    """Return the expected share of the machines that are available."""
    steps = (threshold + step * margin / machines for step in range(machines))
    return sum(1 - NORMAL.cdf(step) for step in steps) / machines


def _probability_of_none(thresholds: Sequence[float], weights: Sequence[float]) -> float:
    """Return the probability that all zones are below their thresholds, by integrating over the shared part."""
    width, total = 0.05, 0.0
    for position in range(-120, 121):
        shared = position * width
        density = exp(-shared * shared / 2) / sqrt(2 * pi) * width
        for threshold, weight in zip(thresholds, weights, strict=True):
            density *= NORMAL.cdf((threshold - weight * shared) / sqrt(1 - weight * weight))
        total += density
    return total


def _solve(decreasing: Callable[[float], float], value: float, low: float, high: float) -> float:
    """Return the argument for which a decreasing function takes a value, or the nearer end of the interval."""
    for _ in range(50):
        middle = (low + high) / 2
        if decreasing(middle) > value:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def generate(
    model: MarketModel,
    *,
    seed: int,
    hours: float,
    machines: int,
    zones: Sequence[str] = (),
    gap_seconds: float = GAP_SECONDS,
) -> CapacityHistory:
    """Return a history; the same arguments return the same history.

    Args:
        model: model of the market.
        seed: seed of the random numbers.
        hours: duration of the history.
        machines: largest capacity of a zone.
        zones: names of the zones; if empty, zone-1 and so on.
        gap_seconds: duration of a tick.
    """
    ticks = ceil(hours * HOUR_SECONDS / gap_seconds)
    shared = list(islice(_surplus(model, random.Random(f"{seed}/shared"), gap_seconds), ticks))  # noqa: S311 - reproducible on purpose
    columns = []
    for position, zone in enumerate(model.zones):
        zone_surplus = _surplus(model, random.Random(f"{seed}/{position}"), gap_seconds)  # noqa: S311
        weight = sqrt(1 - zone.loading**2)
        columns.append(
            [
                _available(zone, zone.loading * shared_value + weight * zone_value, machines)
                for shared_value, zone_value in zip(shared, zone_surplus, strict=False)
            ]
        )
    names = tuple(zones) or tuple(f"zone-{number + 1}" for number in range(len(model.zones)))
    return CapacityHistory(names, gap_seconds, tuple(zip(*columns, strict=True)))


def _available(zone: ZoneModel, surplus: float, machines: int) -> int:
    return max(0, min(machines, ceil((surplus - zone.threshold) / zone.margin * machines)))


def _surplus(model: MarketModel, rng: random.Random, gap_seconds: float) -> Iterator[float]:
    """Yield the surplus at each tick."""
    ticks_per_hour = HOUR_SECONDS / gap_seconds
    slow = _renewals(rng, model.regime_hours * ticks_per_hour)
    fast = _renewals(rng, model.fluctuation_hours * ticks_per_hour)
    slow_weight, fast_weight = sqrt(model.regime_share), sqrt(1 - model.regime_share)
    for regime, fluctuation in zip(slow, fast, strict=True):
        yield slow_weight * regime + fast_weight * fluctuation


def _renewals(rng: random.Random, mean_ticks: float) -> Iterator[float]:
    """Yield a standard normal value at each tick, drawn again after an exponentially distributed time."""
    value, tick, next_draw = rng.gauss(0, 1), 0, rng.expovariate(1 / mean_ticks)
    while True:
        while tick >= next_draw:
            value, next_draw = rng.gauss(0, 1), next_draw + rng.expovariate(1 / mean_ticks)
        yield value
        tick += 1
