"""Goodput over months of a spot market, simulated: workers that live on against workers that restart.

    python3 -m benchmarks.goodput              # a table
    python3 -m benchmarks.goodput --json       # everything, the assumptions included

Not a measurement of a run: `everstep.goodput.replay` lets each design live through histories of
`twin.clouds.capacity.market`, which is fitted to published statistics of spot fleets. What each change
costs was measured (docs/measurements.md), on processors and with small models; what depends on the model
is calculated from its size. The output says all that was assumed.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, takewhile
from statistics import median

from everstep.goodput import (
    Cause,
    Change,
    Cost,
    Design,
    Outcome,
    assumptions,
    live,
    replay,
    restart,
)
from twin.clouds.capacity import market

HOURS = 350  # the published traces last 271 to 428
CHANGES_PER_HOUR = (0.29, 1.05)  # the calmest and the roughest of them
FLEETS = (4, 16)  # machines of the published traces
IMAGENET_IMAGES = 1_281_167
LIVE_CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model in training on machines with one V100 each.

    Attributes:
        parameters: how many; the state is these and as much momentum, 4 bytes each.
        images_per_second: of one machine.
        batch: images of one machine in a step.
        source: where the figures are from.
    """

    name: str
    parameters: int
    images_per_second: float
    batch: int
    source: str

    @property
    def state_bytes(self) -> float:
        """What a joiner has to be given, and a checkpoint holds."""
        return self.parameters * 8.0

    @property
    def step_seconds(self) -> float:
        """One optimizer step."""
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
        "DeepLearningExamples), by the operations of both (4.2 and 37 G, Tan and Le 2019)",
    ),
)


def designs(workload: Workload, gigabits: float) -> list[Design]:
    """The ways of training that are compared."""
    stall = Cost(
        0.34 * workload.state_bytes / 204.7e6,
        "0.34 s for 204.7 MB: torch.save, fsync, rename, measured on a CPU",
    )
    epoch = IMAGENET_IMAGES / workload.images_per_second
    return [
        live(
            state_bytes=workload.state_bytes,
            step_seconds=workload.step_seconds,
            bytes_per_second=gigabits * 1e9 / 8,
            checkpoint_seconds=LIVE_CHECKPOINT_SECONDS,
        ),
        restart(60, name="restart, a checkpoint a minute", stall=stall),
        restart(300, name="restart, a checkpoint in five minutes", stall=stall),
        restart(0, name="restart, a checkpoint an epoch", checkpoint_work=epoch, stall=stall),
    ]


def history(seed: int, machines: int, per_hour: float, hours: float) -> Iterator[Change]:
    """A market's changes as a group meets them; no notice is ever given."""
    parameters = market.Parameters(changes_per_hour=per_hour)
    seen = market.changes(str(seed), machines, parameters)
    for before, after in pairwise(takewhile(lambda change: change.at <= hours * 3600, seen)):
        moved = after.machines - before.machines
        yield Change(after.at, Cause.JOIN if moved > 0 else Cause.LOSS, abs(moved))


def simulate(
    workload: Workload, machines: int, options: argparse.Namespace
) -> list[dict[str, object]]:
    """All designs over the same markets, from the calmest to the roughest."""
    least, most = CHANGES_PER_HOUR
    rates = [least + (most - least) * i / max(options.seeds - 1, 1) for i in range(options.seeds)]
    histories = [
        list(history(seed, machines, rate, options.hours)) for seed, rate in enumerate(rates)
    ]
    found = []
    for design in designs(workload, options.gigabits):
        outcomes = [replay(machines, one, options.hours * 3600, design) for one in histories]
        found.append(summary(workload, machines, design, outcomes))
    return found


def summary(
    workload: Workload, machines: int, design: Design, outcomes: Sequence[Outcome]
) -> dict[str, object]:
    """One line of the result."""
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
    """The least, the median and the greatest."""
    return {"least": min(values), "median": median(values), "most": max(values)}


GENERAL = (
    "a simulation: no machine was lost for it",
    f"{CHANGES_PER_HOUR[0]} to {CHANGES_PER_HOUR[1]} changes an hour, of a market fitted to skypilot-org/spot-traces",
    "churn faster than the five minutes between those traces' looks is not in them",
    "no notice is given: every loss has to be detected",
    "time in which the market has no machine counts for nobody; goodput is of the rest",
    "costs of changes as measured with 3 workers on CPUs, the worst seen for `live`",
    "a larger group's costs, and the start-up of a GPU, may be more",
    "work grows with the number of machines; checkpoints lie outside of the spot machines",
)


def main() -> None:
    """Simulate, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=25, help="markets for each fleet")
    parser.add_argument("--hours", type=float, default=HOURS, help="length of each history")
    parser.add_argument("--gigabits", type=float, default=10, help="network of a machine, Gbit/s")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [row for load in WORKLOADS for fleet in FLEETS for row in simulate(load, fleet, options)]
    workloads = [asdict(load) for load in WORKLOADS]
    if options.json:
        print(json.dumps({"assumed": GENERAL, "workloads": workloads, "results": rows}, indent=1))
        return
    print(f"{'model':16} {'machines':>8}  {'design':38} {'goodput (range)':24} of machines' time")
    for row in rows:
        print(
            f"{row['model']:16} {row['machines']:8}  {row['design']:38} "
            f"{words(row['goodput']):24} {words(row['machine_goodput'])}"
        )
    print("\nAssumed:")
    for line in (*GENERAL, *(f"{load.name}: {load.source}" for load in WORKLOADS)):
        print(f"  - {line}")
    print("  - each cost with its source: --json")


def words(found: object) -> str:
    """A spread as text."""
    assert isinstance(found, dict)
    return f"{found['median']:.4f} ({found['least']:.4f}-{found['most']:.4f})"


if __name__ == "__main__":
    main()
