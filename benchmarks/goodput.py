"""Simulate goodput over months of a spot market: workers that keep running against workers that restart.

    python3 -m benchmarks.goodput              # a table
    python3 -m benchmarks.goodput --json       # all figures and assumptions

Not a measurement of a run: `everstep.goodput.replay` applies histories of `cloudtwin.capacity.market`,
which is fitted to published statistics of spot fleets, to each design. The cost of each change was
measured (docs/measurements.md) on CPUs and with small models; costs that depend on the model
are calculated from its size. The output lists all assumptions.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, takewhile
from statistics import median
from typing import Any

from cloudtwin.capacity import market

from everstep.catalog.units import HOUR_SECONDS
from everstep.goodput import (
    ChangeCause,
    ChangeCost,
    Design,
    GoodputResult,
    MachineChange,
    assumptions,
    live_design,
    replay,
    restart_design,
)

HOURS = 350  # the published traces last 271 to 428
CHANGES_PER_HOUR = (0.29, 1.05)  # least and most volatile of the published traces
FLEETS = (4, 16)  # machines of the published traces
IMAGENET_IMAGES = 1_281_167
LIVE_CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model in training on machines with one V100 each.

    Attributes:
        parameters: number of parameters; the state has as many momentum values, 4 bytes each.
        images_per_second: throughput of one machine.
        batch: images per step on one machine.
        source: source of the figures.
    """

    name: str
    parameters: int
    images_per_second: float
    batch: int
    source: str

    @property
    def state_bytes(self) -> float:
        """Size of the state that a joiner receives and a checkpoint contains."""
        return self.parameters * 8.0

    @property
    def step_seconds(self) -> float:
        """Duration of one optimizer step."""
        return self.batch / self.images_per_second


WORKLOADS = (
    Workload(
        name="resnet50",
        parameters=25_557_032,
        images_per_second=1200,
        batch=256,
        source="torchvision's parameter count; NVIDIA DeepLearningExamples, one V100, mixed precision",
    ),
    Workload(
        name="efficientnet_b7",
        parameters=66_347_960,
        images_per_second=204 * 4.2 / 37,
        batch=8,
        source="torchvision's parameter count; no rate on a V100 is published: 204 images/s of B4 (NVIDIA "
        "DeepLearningExamples), scaled by the operations of both (4.2 and 37 G, Tan and Le 2019)",
    ),
)


def designs(workload: Workload, gigabits: float) -> list[Design]:
    """Return the designs to compare."""
    stall = ChangeCost(
        0.34 * workload.state_bytes / 204.7e6,
        "0.34 s for 204.7 MB: torch.save, fsync, rename, measured on a CPU",
    )
    epoch = IMAGENET_IMAGES / workload.images_per_second
    return [
        live_design(
            state_bytes=workload.state_bytes,
            step_seconds=workload.step_seconds,
            bytes_per_second=gigabits * 1e9 / 8,
            checkpoint_seconds=LIVE_CHECKPOINT_SECONDS,
        ),
        restart_design(60, name="restart, a checkpoint every minute", stall=stall),
        restart_design(300, name="restart, a checkpoint every five minutes", stall=stall),
        restart_design(
            0, name="restart, a checkpoint every epoch", checkpoint_work=epoch, stall=stall
        ),
    ]


def history(seed: int, machines: int, per_hour: float, hours: float) -> Iterator[MachineChange]:
    """Yield a market's changes as a group experiences them, always without notice."""
    parameters = market.MarketParameters(changes_per_hour=per_hour)
    changes = market.changes(str(seed), machines, parameters)
    for before, after in pairwise(
        takewhile(lambda change: change.at_seconds <= hours * HOUR_SECONDS, changes)
    ):
        difference = after.machines - before.machines
        cause = ChangeCause.JOIN if difference > 0 else ChangeCause.LOSS
        yield MachineChange(after.at_seconds, cause, abs(difference))


def simulate(
    workload: Workload, machines: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Simulate all designs over the same markets, from the least to the most volatile."""
    lowest, highest = CHANGES_PER_HOUR
    rates = [
        lowest + (highest - lowest) * seed / max(options.seeds - 1, 1)
        for seed in range(options.seeds)
    ]
    histories = [
        list(history(seed, machines, rate, options.hours)) for seed, rate in enumerate(rates)
    ]
    rows = []
    for design in designs(workload, options.gigabits):
        outcomes = [
            replay(machines, history, options.hours * HOUR_SECONDS, design) for history in histories
        ]
        rows.append(summary(workload, machines, design, outcomes))
    return rows


def summary(
    workload: Workload, machines: int, design: Design, outcomes: Sequence[GoodputResult]
) -> dict[str, object]:
    """Return one row of the result."""
    return {
        "model": workload.name,
        "machines": machines,
        "design": design.name,
        "goodput": spread([outcome.goodput for outcome in outcomes]),
        "machine_goodput": spread([outcome.machine_goodput for outcome in outcomes]),
        "changes": sum(outcome.changes for outcome in outcomes),
        "assumptions": list(assumptions(design)),
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return minimum, median and maximum."""
    return {"minimum": min(values), "median": median(values), "maximum": max(values)}


ASSUMPTIONS = (
    "a simulation: no machine was lost for it",
    f"{CHANGES_PER_HOUR[0]} to {CHANGES_PER_HOUR[1]} changes an hour, of a market fitted to skypilot-org/spot-traces",
    "changes within the five-minute sampling interval of those traces are not included",
    "without notices: every loss has to be detected",
    "time in which the market has no machine is not part of the elapsed time",
    "costs of changes as measured with 3 workers on CPUs, the highest measured for `live`",
    "larger groups and the start-up of a GPU may cost more",
    "a group's speed is proportional to its number of machines; checkpoints are stored outside the spot machines",
)


def main() -> None:
    """Simulate and print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=25, help="markets for each fleet")
    parser.add_argument("--hours", type=float, default=HOURS, help="length of each history")
    parser.add_argument("--gigabits", type=float, default=10, help="network of a machine, Gbit/s")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args()
    rows = [
        row
        for workload in WORKLOADS
        for fleet in FLEETS
        for row in simulate(workload, fleet, options)
    ]
    workloads = [asdict(workload) for workload in WORKLOADS]
    if options.json:
        print(
            json.dumps({"assumed": ASSUMPTIONS, "workloads": workloads, "results": rows}, indent=1)
        )
        return
    print(
        f"{'model':16} {'machines':>8}  {'design':40} {'goodput (range)':24} machine-time goodput"
    )
    for row in rows:
        print(
            f"{row['model']:16} {row['machines']:8}  {row['design']:40} "
            f"{format_spread(row['goodput']):24} {format_spread(row['machine_goodput'])}"
        )
    print("\nAssumed:")
    for line in (*ASSUMPTIONS, *(f"{workload.name}: {workload.source}" for workload in WORKLOADS)):
        print(f"  - {line}")
    print("  - each cost with its source: --json")


def format_spread(values: object) -> str:
    """Return a spread as text."""
    assert isinstance(values, dict)
    return f"{values['median']:.4f} ({values['minimum']:.4f}-{values['maximum']:.4f})"


if __name__ == "__main__":
    main()
