"""A capacity history: the machines that each zone offers at each tick, and its statistics."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import add

from everstep.catalog.units import HOUR_SECONDS


@dataclass(frozen=True)
class CapacityHistory:
    """The capacity of several zones, sampled at equal intervals.

    Attributes:
        zones: names of the zones.
        gap_seconds: duration of a tick.
        machines: available machines by tick and zone; shape (ticks, zones).
    """

    zones: tuple[str, ...]
    gap_seconds: float
    machines: tuple[tuple[int, ...], ...]

    @property
    def hours(self) -> float:
        """Duration in hours."""
        return len(self.machines) * self.gap_seconds / HOUR_SECONDS

    def by_zone(self) -> dict[str, list[int]]:
        """Return the available machines of each zone, by tick."""
        return {zone: [tick[i] for tick in self.machines] for i, zone in enumerate(self.zones)}

    def with_zones(self, zones: Sequence[int]) -> "CapacityHistory":
        """Return the history of the zones at these positions only."""
        return CapacityHistory(
            tuple(self.zones[zone] for zone in zones),
            self.gap_seconds,
            tuple(tuple(tick[zone] for zone in zones) for tick in self.machines),
        )

    def from_tick(self, tick: int) -> "CapacityHistory":
        """Return the history that begins at a tick and continues, after its end, with its beginning."""
        return CapacityHistory(
            self.zones, self.gap_seconds, self.machines[tick:] + self.machines[:tick]
        )

    def sampled(self, gap_seconds: float) -> "CapacityHistory":
        """Return the history with ticks of another duration; a value holds until the next sample."""
        ticks = max(1, int(len(self.machines) * self.gap_seconds // gap_seconds))
        samples = (int(tick * gap_seconds // self.gap_seconds) for tick in range(ticks))
        return CapacityHistory(
            self.zones, gap_seconds, tuple(self.machines[sample] for sample in samples)
        )

    def limited(self, machines: int) -> "CapacityHistory":
        """Return the history with at most this number of machines in a zone."""
        return self.limited_by_zone([machines] * len(self.zones))

    def limited_by_zone(self, machines: Sequence[int]) -> "CapacityHistory":
        """Return the history with at most these numbers of machines, by position of the zone."""
        return CapacityHistory(
            self.zones,
            self.gap_seconds,
            tuple(tuple(map(min, tick, machines)) for tick in self.machines),
        )

    def plus(self, machines: Sequence[int]) -> "CapacityHistory":
        """Return the history with more machines at all times, by position of the zone."""
        return CapacityHistory(
            self.zones,
            self.gap_seconds,
            tuple(tuple(map(add, tick, machines)) for tick in self.machines),
        )


@dataclass(frozen=True, kw_only=True)
class HistoryStatistics:
    """Statistics of a history, as published for spot traces.

    Attributes:
        means: mean number of machines, by zone.
        none_shares: share of the time without a machine, by zone.
        changes_per_hour: changes of the number of machines, by zone.
        best_mean: mean number of machines in the best zone of each moment.
        none_anywhere: share of the time without a machine in any zone.
        best_zone_moves: moves of an observer that is always in a best zone and stays there on a tie.
    """

    means: tuple[float, ...]
    none_shares: tuple[float, ...]
    changes_per_hour: tuple[float, ...]
    best_mean: float
    none_anywhere: float
    best_zone_moves: int


def describe(history: CapacityHistory) -> HistoryStatistics:
    """Return the statistics of a history that has at least one tick."""
    by_zone = tuple(zip(*history.machines, strict=True))
    best = [max(tick) for tick in history.machines]
    ticks = len(best)
    return HistoryStatistics(
        means=tuple(sum(zone) / ticks for zone in by_zone),
        none_shares=tuple(zone.count(0) / ticks for zone in by_zone),
        changes_per_hour=tuple(_changes(zone) / history.hours for zone in by_zone),
        best_mean=sum(best) / ticks,
        none_anywhere=best.count(0) / ticks,
        best_zone_moves=_best_zone_moves(history.machines),
    )


def _changes(counts: Sequence[int]) -> int:
    return sum(before != after for before, after in pairwise(counts))


def _best_zone_moves(machines: Sequence[tuple[int, ...]]) -> int:
    zone, moves = machines[0].index(max(machines[0])), 0
    for tick in machines:
        best = max(tick)
        if tick[zone] < best:
            zone, moves = tick.index(best), moves + 1
    return moves
