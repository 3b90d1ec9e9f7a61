"""Simulate the policies that follow spot capacity: how much of the market they use, what a deadline costs.

    python -m benchmarks.capacity                   # five tables, a few minutes
    python -m benchmarks.capacity --histories 10    # a sample
    python -m benchmarks.capacity --plot week.svg   # a picture of one simulated week, nothing else

A deterministic simulation: the same options print the same figures on any machine. It uses no real machines.

1. The generated histories next to the published statistics that they are fitted to.
2. Machine-hours of a group that follows capacity over three zones, against the best zone at each moment
   and a group that stays in one zone, with the highest ratio that any group in one zone at a time can reach; the
   same with slower machine starts, and with scarcer capacity.
3. A job with a deadline: how many histories meet it, and the cost over the optimum computed in hindsight.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from cloudfacts import prices

from benchmarks.goodput import CHANGES_PER_HOUR
from benchmarks.progress import track
from everstep.capacity.generator import PUBLISHED, MarketModel, fit, generate
from everstep.capacity.hindsight import cheapest
from everstep.capacity.history import CapacityHistory, describe
from everstep.capacity.job import JobModel, Prices
from everstep.capacity.on_demand import (
    Policy,
    always,
    greedy,
    latest_start,
    never,
    uniform_progress,
)
from everstep.capacity.picture import draw
from everstep.capacity.placement import PlacementConfig
from everstep.capacity.simulator import Outcome, parameters_of, simulate
from everstep.catalog.units import HOUR_SECONDS
from everstep.goodput import ChangeCost

MACHINES = 16
FIT_HOURS = 270.0
HOURS = 300.0
WEEK_HOURS = 168.0
JOB_HOURS = 12.0  # duration of a job on all machines
SLACKS = (1.1, 1.25, 1.5, 2.0)
"""Deadlines, as multiples of the shortest duration."""

POLICIES: Sequence[Policy] = (latest_start, uniform_progress, greedy, always)
MACHINE_TYPES = (("g5.xlarge", "us-east-1"), ("Standard_NC24ads_A100_v4", "eastus"))
"""Machine types and regions with their prices: spot costs half of the on-demand price for the first, and less
than a fifth of it for the second."""

WORST_REGION = 0.29
"""Share of the time in which no zone of the worst region in the two-month traces has a machine."""

SLOW_BOOT = ChangeCost(600.0, "twice the assumption of everstep.capacity.job")
PLACEMENT = PlacementConfig(machines=MACHINES)
ENDLESS = JobModel(work=1e15, machines=MACHINES, prices=Prices(0.0, 0.0))


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes:
        name: name of the figure.
        value: its value as text.
        expected: the published value or the target as text; empty if there is none.
    """

    name: str
    value: str
    expected: str = ""


def histories(model: MarketModel, count: int, seed: int, hours: float) -> list[CapacityHistory]:
    """Return generated histories."""
    numbers = track(range(count), f"histories of {hours:.0f} h", count)
    return [generate(model, seed=seed + n, hours=hours, machines=MACHINES) for n in numbers]


def fit_rows(histories: Sequence[CapacityHistory]) -> Iterator[Row]:
    """Yield the statistics of histories next to the published statistics."""
    descriptions = [describe(history) for history in histories]
    lowest_rate, highest_rate = CHANGES_PER_HOUR
    for zone, published in enumerate(PUBLISHED.zones):
        means = [statistics.means[zone] for statistics in descriptions]
        none_shares = [statistics.none_shares[zone] for statistics in descriptions]
        rates = [statistics.changes_per_hour[zone] for statistics in descriptions]
        expected = f"{published.mean_share * MACHINES:.1f}"
        yield Row(f"zone {zone + 1}: mean machines", spread(means, ".1f"), expected)
        yield Row(
            f"zone {zone + 1}: time without machines",
            spread(none_shares, ".0%"),
            f"{published.none_share:.0%}",
        )
        expected = f"{lowest_rate}-{highest_rate}"
        yield Row(f"zone {zone + 1}: changes an hour", spread(rates, ".2f"), expected)
    yield Row(
        "best zone: mean machines",
        spread([statistics.best_mean for statistics in descriptions], ".1f"),
        "13.3",
    )
    yield Row(
        "best zone: time without machines",
        spread([statistics.none_anywhere for statistics in descriptions], ".0%"),
        f"{PUBLISHED.none_anywhere:.0%}",
    )
    moves = [statistics.best_zone_moves for statistics in descriptions]
    yield Row(f"best zone: moves in {histories[0].hours:.0f} h", spread(moves, ".0f"), "about 30")


def follow(history: CapacityHistory, job: JobModel = ENDLESS) -> Outcome:
    """Return the outcome of a group that follows capacity over all zones of a history."""
    placement = replace(PLACEMENT, start_seconds=job.start_seconds)
    return simulate(history, job, parameters_of(job, history.gap_seconds), placement, never)


def following_rows(histories: Sequence[CapacityHistory], job: JobModel = ENDLESS) -> Iterator[Row]:
    """Yield the machine-hours of training compared with the best zone and with single zones, and the moves."""
    outcomes = [
        follow(item, job) for item in track(histories, "following capacity", len(histories))
    ]
    best = [sum(map(max, item.machines)) * item.gap_seconds for item in histories]
    shares = [item.work_done / available for item, available in zip(outcomes, best, strict=True)]
    total = sum(item.work_done for item in outcomes)
    yield Row(
        "share of the best zone's machine-hours, all histories", f"{total / sum(best):.1%}", "90%"
    )
    yield Row("... by history", spread(shares, ".1%"))
    moves = [item.moves / history.hours for item, history in zip(outcomes, histories, strict=True)]
    yield Row("moves an hour", spread(moves, ".2f"), "at most 1")
    zones = range(len(histories[0].zones))
    single_zone = [
        sum(follow(item.with_zones([zone]), job).work_done for item in histories) for zone in zones
    ]
    yield Row("machine-hours relative to a random zone", f"{total / mean(single_zone):.2f}", "2")
    by_zone = ", ".join(f"{total / item:.2f}" for item in single_zone)
    yield Row("machine-hours relative to each zone", by_zone)
    bounds = [upper_bound(item) for item in histories]
    mean_zone = sum(_mean_zone_total(item) * item.gap_seconds for item in histories)
    yield Row(
        "upper bound: best zone over mean zone, all histories", f"{sum(best) / mean_zone:.2f}"
    )
    yield Row("... by history", spread(bounds, ".2f"))


def upper_bound(history: CapacityHistory) -> float:
    """Return the machine-hours of the best zone at each moment, as a multiple of the mean zone's machine-hours.

    No group in one zone at a time can use more, compared with a zone drawn at random.
    """
    average = _mean_zone_total(history)
    return sum(map(max, history.machines)) / average if average else 1.0


def _mean_zone_total(history: CapacityHistory) -> float:
    """Return the sum over all ticks of the mean number of machines of a zone."""
    return sum(map(sum, history.machines)) / len(history.zones)


def deadline_rows(model: MarketModel, count: int, seed: int) -> Iterator[Row]:
    """Yield, for each price and deadline, the cost of each policy over the optimum in hindsight."""
    for name, region in MACHINE_TYPES:
        price = prices.machine(name, region)
        assert price.spot is not None
        assert price.on_demand is not None
        job = JobModel(
            work=MACHINES * JOB_HOURS * HOUR_SECONDS,
            machines=MACHINES,
            prices=Prices(price.spot, price.on_demand),
        )
        for slack in SLACKS:
            yield from _deadline(model, count, seed, job, slack, name)


def _deadline(
    model: MarketModel, count: int, seed: int, job: JobModel, slack: float, name: str
) -> Iterator[Row]:
    deadline = job.shortest_seconds * slack
    sample = histories(model, count, seed, deadline / HOUR_SECONDS + 1)
    title = f"{name}, {slack:g} times the shortest duration"
    optimum = [cheapest(item, job, deadline) for item in track(sample, title, count)]
    for policy in POLICIES:
        outcomes = [simulate_with_deadline(item, job, deadline, policy) for item in sample]
        in_time = sum(item.complete and item.seconds <= deadline for item in outcomes)
        excess = [item.usd / lowest - 1 for item, lowest in zip(outcomes, optimum, strict=True)]
        target = "all in time, 15%" if policy is latest_start else ""
        text = f"{in_time} of {count} in time, {spread(excess, '.1%')} over the optimum, mean {mean(excess):.1%}"
        yield Row(f"{title}: {policy.__name__}", text, target)


def simulate_with_deadline(
    history: CapacityHistory, job: JobModel, deadline: float, policy: Policy
) -> Outcome:
    """Return the outcome of a job with a deadline."""
    parameters = parameters_of(job, history.gap_seconds, deadline)
    return simulate(history, job, parameters, PLACEMENT, policy)


def spread(values: Sequence[float], format_spec: str) -> str:
    """Return the median with minimum and maximum."""
    low, high = format(min(values), format_spec), format(max(values), format_spec)
    return f"{median(values):{format_spec}} ({low} to {high})"


def tables(count: int, seed: int) -> dict[str, list[Row]]:
    """Return all tables by title."""
    model = fit()
    worst_model = fit(replace(PUBLISHED, none_anywhere=WORST_REGION))
    return {
        f"Fit: {count} histories of {FIT_HOURS:.0f} h": [
            *fit_rows(histories(model, count, seed, FIT_HOURS))
        ],
        f"Following capacity: {count} histories of {HOURS:.0f} h": [
            *following_rows(histories(model, count, seed, HOURS))
        ],
        f"The same if a machine starts in {SLOW_BOOT.seconds:.0f} s": [
            *following_rows(histories(model, count, seed, HOURS), replace(ENDLESS, boot=SLOW_BOOT))
        ],
        f"The same if no zone has a machine for {WORST_REGION:.0%} of the time": [
            *following_rows(histories(worst_model, count, seed, HOURS))
        ],
        f"Deadlines: {count} histories, {JOB_HOURS:g} h of {MACHINES} machines": [
            *deadline_rows(model, count, seed)
        ],
    }


def week(seed: int) -> str:
    """Return a picture of one simulated week as SVG."""
    history = generate(fit(), seed=seed, hours=WEEK_HOURS, machines=MACHINES)
    parameters = parameters_of(ENDLESS, history.gap_seconds)
    outcome = simulate(history, ENDLESS, parameters, PLACEMENT, never, record=True)
    return draw(history, outcome.ticks, MACHINES)


def main() -> None:
    """Simulate and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=100, help="number of histories")
    parser.add_argument("--seed", type=int, default=1000, help="seed of the first history")
    parser.add_argument("--plot", type=Path, help="write a picture of one week instead")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args()
    if options.plot:
        options.plot.write_text(week(options.seed))
        return
    results = tables(options.histories, options.seed)
    if options.json:
        print(json.dumps({t: [vars(row) for row in rows] for t, rows in results.items()}, indent=1))
        return
    for title, rows in results.items():
        print(f"\n{title}")
        for row in rows:
            print(f"  {row.name:70} {row.value:72} {row.expected}".rstrip())


if __name__ == "__main__":
    main()
