"""Check with `trainer.verify` that every sample is trained exactly once under seeded schedules of failures.

    python3 -m benchmarks.schedules --simulated 200        # real state machines, simulated machines
    python3 -m benchmarks.schedules --partial 10000        # partial, late, duplicated and reordered faults
    python3 -m benchmarks.schedules --suspicion 10000      # in addition, heartbeats that are lost, late or one-way
    python3 -m benchmarks.schedules --real 20              # real agents, workers and etcd on loopback
    python3 -m benchmarks.schedules --simulated 200 --real 20 --events 10 --json

A simulated or real schedule has at least --events events: crashes, freezes, drains and returns. A schedule of
partial faults or suspicions has a fixed number of random actions. A real schedule ends with SIGTERM to
all nodes, so that the last node saves its state; a separate process then verifies the ledger. Exits with 1
if a sample was missing or trained twice, or if an invariant of recovery does not hold.
"""

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.progress import track
from tests.everstep.elastic.data_order.ledger_simulation import play, write_run
from tests.everstep.elastic.recovery.partial_faults import PartialFaultWorld
from tests.everstep.elastic.recovery.suspicion_faults import SuspicionWorld
from tests.everstep.elastic.recovery.test_state_machine import MOVES
from tests.everstep.elastic.recovery.test_state_machine import play as play_partial
from tests.trainer.elastic.nodes import NAMES, Nodes, running_etcd, small_data
from tests.trainer.verification import run_verify

START_SECONDS = 300.0
KINDS = ("kill", "vanish", "freeze", "drain")


@dataclass(frozen=True)
class ScheduleOutcome:
    """Result of one schedule."""

    kind: str
    seed: int
    events: int
    commits: int
    steps: int
    verdict: str  # output of `trainer.verify`, or the result of the invariants
    right: bool  # whether the samples and all invariants are correct


def main() -> None:
    """Run all schedules."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulated", type=int, default=0, help="number of simulated schedules")
    parser.add_argument("--partial", type=int, default=0, help="schedules of partial faults")
    parser.add_argument("--suspicion", type=int, default=0, help="schedules of lost heartbeats")
    parser.add_argument("--real", type=int, default=0, help="schedules of real agents and workers")
    parser.add_argument(
        "--events", type=int, default=10, help="minimum number of events in a schedule"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the first schedule; each further schedule adds 1",
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        all_correct = report_outcomes(
            run_schedules(Path(scratch), options),
            lambda outcome: (
                f"{outcome.kind} {outcome.seed}: {outcome.events} events, {outcome.verdict}"
            ),
            lambda outcome: outcome.right,
            "with a sample missing or trained twice, or a broken invariant",
            count=options.simulated + options.partial + options.suspicion + options.real,
            as_json=options.json,
        )
    sys.exit(0 if all_correct else 1)


def report_outcomes(
    outcomes: Iterable[Any],
    sentence: Callable[[Any], str],
    is_correct: Callable[[Any], bool],
    fault: str,
    *,
    count: int,
    as_json: bool,
) -> bool:
    """Print each outcome and the number of failures, or all as JSON; return True if none failed."""
    results = []
    for outcome in track(outcomes, "schedules", count):
        results.append(outcome)
        if not as_json:
            print(sentence(outcome), flush=True)
    failures = sum(not is_correct(outcome) for outcome in results)
    if as_json:
        print(json.dumps([asdict(outcome) for outcome in results], indent=1))
    else:
        print(f"{len(results)} schedules, {failures} {fault}")
    return not failures


def run_schedules(folder: Path, options: argparse.Namespace) -> Iterator[ScheduleOutcome]:
    """Yield the outcomes of the simulated schedules, then of the real schedules."""
    for seed in range(options.seed, options.seed + options.simulated):
        world = play(seed, options.events)
        write_run(world, folder / f"simulated-{seed}")
        yield verify(folder / f"simulated-{seed}", "simulated", seed, world.events)
    for seed in range(options.seed, options.seed + options.partial):
        yield run_partial(seed, "partial", PartialFaultWorld)
    for seed in range(options.seed, options.seed + options.suspicion):
        yield run_partial(seed, "suspicion", SuspicionWorld)
    if options.real:
        data = small_data(folder, samples=400)
        with running_etcd(folder) as etcd:
            for seed in range(options.seed, options.seed + options.real):
                yield run_real(folder / f"real-{seed}", etcd, data, seed, options.events)


def run_partial(seed: int, kind: str, world_type: type[PartialFaultWorld]) -> ScheduleOutcome:
    """Run one simulated schedule of partial faults and check the invariants of recovery."""
    try:
        world = play_partial(seed, 1 + seed % 2, world_type, coordinators=seed % 3)
    except AssertionError as violation:
        return ScheduleOutcome(kind, seed, 0, 0, 0, str(violation), right=False)
    steps = max(len(agent.worker.state or ()) for agent in world.started_agents())
    return ScheduleOutcome(kind, seed, MOVES, 0, steps, "all invariants hold", right=True)


def verify(run: Path, kind: str, seed: int, events: int) -> ScheduleOutcome:
    """Run `trainer.verify` on a run in a separate process; return its result."""
    result = run_verify(run)
    output = (result.stdout + result.stderr).strip()
    counts = re.search(r"(\d+) commits, the last at step (\d+)", output)
    commits, steps = map(int, counts.groups()) if counts else (0, 0)
    return ScheduleOutcome(kind, seed, events, commits, steps, output, right=result.returncode == 0)


def run_real(folder: Path, etcd: str, data: Path, seed: int, events: int) -> ScheduleOutcome:
    """Run a job of three nodes through a number of events."""
    folder.mkdir()
    arguments = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    arguments += ["--global-batch", "12", "--epochs", "100000", "--checkpoint-seconds", "1"]
    nodes = Nodes(folder, etcd, arguments, job=f"schedule-{seed}-{os.getpid()}")
    rng = random.Random(seed)  # noqa: S311 - a schedule is not secret
    try:
        for name in NAMES:
            nodes.start(name)
        nodes.next_step(0, 3, START_SECONDS)
        count = 0
        while count < events:
            count += lose_and_regain(nodes, rng)
        for name in NAMES:
            nodes.signal_agent(name, signal.SIGTERM)
        for name in NAMES:
            nodes.exit_code(name, 60)
    finally:
        nodes.close()
    return verify(nodes.run, "real", seed, count)


def lose_and_regain(nodes: Nodes, rng: random.Random) -> int:
    """Inject one or two losses shortly after each other, then undo them; return the number of events."""
    losses = [(rng.choice(KINDS), name) for name in rng.sample(NAMES, rng.choice([1, 1, 1, 2]))]
    time.sleep(rng.uniform(0, 1.5))
    generation = nodes.journal("step")[-1]["generation"]
    for kind, name in losses:
        act(nodes, kind, name)
        time.sleep(rng.choice([0, 0, 0.3]))
    absent_nodes = sum(kind != "kill" for kind, _ in losses)  # a killed worker is soon replaced
    nodes.next_step_where(
        lambda step: (
            step["generation"] > generation and step["world_size"] <= len(NAMES) - absent_nodes
        ),
        START_SECONDS,
        "the others continue",
    )
    for kind, name in losses:
        if kind == "freeze":
            nodes.signal_all(name, signal.SIGCONT)
        elif kind != "kill":
            nodes.start(name)
    nodes.next_step(time.time(), len(NAMES), START_SECONDS)
    return 2 * len(losses)


def act(nodes: Nodes, kind: str, name: str) -> None:
    """Inject one loss."""
    actions: dict[str, Callable[[], None]] = {
        "kill": lambda: os.kill(nodes.worker(name), signal.SIGKILL),
        "vanish": lambda: nodes.signal_all(name, signal.SIGKILL),
        "freeze": lambda: nodes.signal_all(name, signal.SIGSTOP),
        "drain": lambda: nodes.signal_agent(name, signal.SIGTERM),
    }
    actions[kind]()


if __name__ == "__main__":
    main()
