"""The cheapest way to meet a deadline, computed with knowledge of the whole history. A yardstick for policies.

Dynamic programming over ticks, machines and progress. At each tick the group is in one of these modes: no
machine, spot machines of one zone, the same with the missing machines on demand, or all on demand. It costs
what the simulator bills. All roundings favour the optimum, and on-demand machines need no move, so that the
result is a lower bound within these modes. Needs numpy, which the command line does not: the benchmark uses it.
"""

from dataclasses import dataclass
from math import ceil, floor, inf

import numpy as np
from numpy.typing import NDArray

from everstep.capacity.history import HOUR_SECONDS, CapacityHistory
from everstep.capacity.job import JobModel


@dataclass(frozen=True)
class _Mode:
    """Machines of one mode: in a zone, and whether missing ones are bought."""

    zone: int | None
    bought: bool


def cheapest(history: CapacityHistory, job: JobModel, deadline_seconds: float) -> float:
    """Return the lowest cost in USD at which the job is complete by the deadline; infinite if it cannot be.

    Args:
        history: at least as long as the deadline.
        job: the job.
        deadline_seconds: time by which it has to be complete.
    """
    modes = [_Mode(None, bought=False), _Mode(None, bought=True)]
    modes += [_Mode(zone, bought) for zone in range(len(history.zones)) for bought in (False, True)]
    units = floor(job.work / history.gap_seconds / job.steady_goodput)
    # Shape (modes, units + 1): the lowest cost to be in a mode with this number of units done, or more.
    costs = np.full((len(modes), units + 1), inf)
    costs[0, 0] = 0.0
    best, before = inf, tuple(0 for _ in history.zones)
    for tick in history.machines[: int(deadline_seconds // history.gap_seconds)]:
        costs = _advance(costs, modes, before, tick, job, history.gap_seconds)
        best, before = min(best, float(costs[:, units].min())), tick
    return best


def _advance(
    costs: NDArray[np.float64],
    modes: list[_Mode],
    before: tuple[int, ...],
    tick: tuple[int, ...],
    job: JobModel,
    gap: float,
) -> NDArray[np.float64]:
    """Return the costs after one more tick."""
    advanced = np.full_like(costs, inf)
    last = costs.shape[1] - 1
    for source, old in enumerate(modes):
        reachable = np.flatnonzero(np.isfinite(costs[source]))
        if not len(reachable):
            continue
        low, high = reachable[0], reachable[-1] + 1
        for target, new in enumerate(modes):
            gain, paid = _transition(old, new, before, tick, job, gap)
            moved = costs[source, low:high] + paid
            row, start, end = advanced[target], low + gain, min(high + gain, last)
            if start < last:
                np.minimum(row[start:end], moved[: end - start], out=row[start:end])
            if high + gain > last:  # complete: more progress is worth nothing
                row[last] = min(row[last], moved[max(0, last - start) :].min())
    return advanced


def _transition(
    old: _Mode,
    new: _Mode,
    before: tuple[int, ...],
    tick: tuple[int, ...],
    job: JobModel,
    gap: float,
) -> tuple[int, float]:
    """Return the units of progress and the cost of a tick in a mode, after a tick in another."""
    was_spot, was_bought = _machines(old, before, job)
    spot, bought = _machines(new, tick, job)
    moved = old.zone is not None and new.zone is not None and old.zone != new.zone
    continuing = 0 if moved else min(was_bought, bought)
    continuing += min(was_spot, spot) if old.zone == new.zone else 0
    trained = (spot + bought) * gap - (spot + bought - continuing) * job.start_seconds
    paid = job.hourly(spot, bought) * gap / HOUR_SECONDS
    if moved and old.zone is not None:  # the old zone trains until the new one does
        remaining = min(was_spot, tick[old.zone])
        trained += (remaining + was_bought) * job.start_seconds
        machines = job.hourly(remaining, was_bought) - job.prices.fixed
        paid += machines * job.start_seconds / HOUR_SECONDS
    return ceil(max(0.0, trained) / gap - 1e-9), paid


def _machines(mode: _Mode, tick: tuple[int, ...], job: JobModel) -> tuple[int, int]:
    """Return the spot and the on-demand machines of a mode."""
    spot = 0 if mode.zone is None else min(tick[mode.zone], job.machines)
    return spot, job.machines - spot if mode.bought else 0
