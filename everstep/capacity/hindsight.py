"""The cheapest way to meet a deadline, computed with knowledge of the whole history: a reference for policies.

Dynamic programming over ticks, machines and progress. At each tick the group is in one of these modes: no
machine, spot machines of one zone, the same with the missing machines on demand, or all on demand. Each mode
costs as much as in the simulator, except that no machine idles after a move. The last tick may end after the deadline,
and is billed in proportion to the work that is left. All rounding favors the optimum, and
on-demand machines need no move, so that the result is a lower bound within these modes. Only the benchmark imports
this module: it needs numpy, which the command line does not.
"""

from dataclasses import dataclass
from math import ceil, floor, inf

import numpy as np
from numpy.typing import NDArray

from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import JobModel
from everstep.catalog.units import HOUR_SECONDS


@dataclass(frozen=True)
class _Mode:
    """A mode of the group.

    Attributes:
        zone: position of the spot machines' zone; None without spot machines.
        buys_missing: whether missing machines are bought on demand.
    """

    zone: int | None
    buys_missing: bool


def cheapest(history: CapacityHistory, job: JobModel, deadline_seconds: float) -> float:
    """Return the lowest cost in USD at which the job is complete by the deadline; infinite if that is impossible.

    Args:
        history: capacity history, at least as long as the deadline.
        job: job to complete.
        deadline_seconds: time by which the job has to be complete.
    """
    modes = [_Mode(None, buys_missing=False), _Mode(None, buys_missing=True)]
    modes += [_Mode(zone, buys) for zone in range(len(history.zones)) for buys in (False, True)]
    units = floor(job.work / history.gap_seconds / job.steady_goodput)
    # Shape (modes, units + 1): the lowest cost to be in a mode with this number of completed units, or more.
    costs = np.full((len(modes), units + 1), inf)
    costs[0, 0] = 0.0
    best, before = inf, tuple(0 for _ in history.zones)
    for tick in history.machines[: ceil(deadline_seconds / history.gap_seconds)]:
        costs = _advance(costs, modes, before, tick, job, history.gap_seconds)
        best, before = min(best, float(costs[:, units].min())), tick
    return best


def _advance(
    costs: NDArray[np.float64],
    modes: list[_Mode],
    before: tuple[int, ...],
    tick: tuple[int, ...],
    job: JobModel,
    gap_seconds: float,
) -> NDArray[np.float64]:
    """Return the costs after one more tick."""
    advanced = np.full_like(costs, inf)
    last = costs.shape[1] - 1
    for source, old_mode in enumerate(modes):
        reachable = np.flatnonzero(np.isfinite(costs[source]))
        if not len(reachable):
            continue
        low, high = reachable[0], reachable[-1] + 1
        for target, new_mode in enumerate(modes):
            gain, cost = _transition(old_mode, new_mode, before, tick, job, gap_seconds)
            new_costs = costs[source, low:high] + cost
            row, start, end = advanced[target], low + gain, min(high + gain, last)
            if start < last:
                np.minimum(row[start:end], new_costs[: end - start], out=row[start:end])
            if high + gain > last:  # complete: only the part of the tick until then is billed
                first = max(low, last - gain)
                shares = (last - np.arange(first, high)) / max(gain, 1)
                row[last] = min(row[last], (costs[source, first:high] + cost * shares).min())
    return advanced


def _transition(
    old_mode: _Mode,
    new_mode: _Mode,
    before: tuple[int, ...],
    tick: tuple[int, ...],
    job: JobModel,
    gap_seconds: float,
) -> tuple[int, float]:
    """Return the units of progress and the cost of a tick in a mode, after a tick in another."""
    old_spot, old_on_demand = _machines(old_mode, before, job)
    spot, on_demand = _machines(new_mode, tick, job)
    old_zone, machines = old_mode.zone, spot + on_demand
    moved = old_zone is not None and new_mode.zone is not None and old_zone != new_mode.zone
    replaces_spot = old_zone is not None and new_mode.zone is None and new_mode.buys_missing
    continuing = 0 if moved else min(old_on_demand, on_demand)
    continuing += min(old_spot, spot) if old_zone == new_mode.zone else 0
    work = machines * gap_seconds - (machines - continuing) * job.start_seconds
    cost = job.hourly_cost(spot, on_demand, new_mode.zone) * gap_seconds / HOUR_SECONDS
    if old_zone is not None and (moved or replaces_spot):  # old machines train until new ones do
        remaining = min(old_spot, tick[old_zone])
        remaining_on_demand = old_on_demand if moved else 0
        work += (remaining + remaining_on_demand) * job.start_seconds
        hourly_cost = job.hourly_cost(remaining, remaining_on_demand, old_zone) - job.prices.fixed
        cost += hourly_cost * job.start_seconds / HOUR_SECONDS
    return ceil(max(0.0, work) / gap_seconds - 1e-9), cost


def _machines(mode: _Mode, tick: tuple[int, ...], job: JobModel) -> tuple[int, int]:
    """Return the numbers of spot and on-demand machines of a mode."""
    spot = 0 if mode.zone is None else min(tick[mode.zone], job.machines)
    return spot, job.machines - spot if mode.buys_missing else 0
