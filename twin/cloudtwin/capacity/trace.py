"""A recorded spot market: the machines that each zone offers, at equal intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cloudtwin.capacity.market import CapacityChange
from cloudtwin.capacity.pools import Pool


@dataclass(frozen=True, kw_only=True)
class Trace:
    """A trace; after its end the last values stay.

    Attributes:
        gap_seconds: simulated seconds between two values.
        machines: values of each zone, at least one; a zone is named as in a Pool, or as AKS names it: `1`.
    """

    gap_seconds: float = 300.0
    machines: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise TypeError or ValueError if a value is not valid."""
        if not isinstance(self.machines, Mapping):
            raise TypeError(
                f"machines={self.machines!r} must be an object with the values of each zone"
            )
        if self.gap_seconds <= 0:
            raise ValueError(f"gap_seconds={self.gap_seconds} must be above 0")
        for zone, values in self.machines.items():
            if not values or min(values) < 0:
                raise ValueError(
                    f"machines[{zone!r}]={values} must be one or more numbers of machines, each at least 0"
                )

    def zone_of(self, pool: Pool) -> str | None:
        """Return the name of a pool's zone in the trace; None if the trace does not have it."""
        names = (pool.zone, short_zone(pool))
        return next((name for name in names if name in self.machines), None)

    def describes(self, pool: Pool) -> bool:
        """Return True if the trace has the zone of a pool."""
        return self.zone_of(pool) is not None

    def capacity_at(self, pool: Pool, seconds: float) -> int:
        """Return the capacity for a pool some seconds after the trace began."""
        values = self._values(pool)
        tick = min(max(int(seconds / self.gap_seconds), 0), len(values) - 1)
        return min(values[tick], pool.max_size)

    def changes(self, pool: Pool) -> Iterator[CapacityChange]:
        """Yield the capacity at the beginning of the trace, and each later change of it."""
        values = [min(value, pool.max_size) for value in self._values(pool)]
        yield CapacityChange(0.0, values[0])
        for tick, (before, after) in enumerate(pairwise(values), start=1):
            if before != after:
                yield CapacityChange(tick * self.gap_seconds, after)

    def _values(self, pool: Pool) -> Sequence[int]:
        zone = self.zone_of(pool)
        return () if zone is None else self.machines[zone]


def short_zone(pool: Pool) -> str:
    """Return the zone of a pool without the region: `1` of `eastus-1`, as AKS names it."""
    return pool.zone.removeprefix(f"{pool.region}-")
