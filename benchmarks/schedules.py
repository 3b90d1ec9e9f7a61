"""Check with `trainer.verify` that every sample is trained exactly once under seeded schedules of failures.

    python3 -m benchmarks.schedules --simulated 200        # real state machines, simulated machines
    python3 -m benchmarks.schedules --partial 10000        # partial, late, duplicated and reordered faults
    python3 -m benchmarks.schedules --suspicion 10000      # and heartbeats that are lost, late or one-way
    python3 -m benchmarks.schedules --real 20              # real agents, workers and etcd on loopback
    python3 -m benchmarks.schedules --simulated 200 --real 20 --events 10 --json

A schedule has at least --events events: crashes, freezes, drains and returns. A real one ends with SIGTERM to
all nodes, so that the last one saves its state; a separate process then verifies the ledger. Exits with 1
if a sample was missing or trained twice.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
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
from tests.trainer.elastic.nodes import NAMES, REPOSITORY, Nodes, running_etcd, small_data

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
    verdict: str
    right: bool


def main() -> None:
    """Run all schedules."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulated", type=int, default=0)
    parser.add_argument("--partial", type=int, default=0)
    parser.add_argument("--suspicion", type=int, default=0)
    parser.add_argument("--real", type=int, default=0)
    parser.add_argument("--events", type=int, default=10)
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the first schedule; the others count up"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        right = report_outcomes(
            run_schedules(Path(scratch), options),
            lambda outcome: (
                f"{outcome.kind} {outcome.seed}: {outcome.events} events, {outcome.verdict}"
            ),
            lambda outcome: outcome.right,
            "with a sample missing or trained twice",
            count=options.simulated + options.partial + options.suspicion + options.real,
            as_json=options.json,
        )
    sys.exit(0 if right else 1)


def report_outcomes(
    outcomes: Iterable[Any],
    sentence: Callable[[Any], str],
    right: Callable[[Any], bool],
    fault: str,
    *,
    count: int,
    as_json: bool,
) -> bool:
    """Print each outcome and the number of failures, or all as JSON; return True if none failed."""
    reported = []
    for outcome in track(outcomes, "schedules", count):
        reported.append(outcome)
        if not as_json:
            print(sentence(outcome), flush=True)
    incorrect = sum(not right(outcome) for outcome in reported)
    if as_json:
        print(json.dumps([asdict(outcome) for outcome in reported], indent=1))
    else:
        print(f"{len(reported)} schedules, {incorrect} {fault}")
    return not incorrect


def run_schedules(folder: Path, options: argparse.Namespace) -> Iterator[ScheduleOutcome]:
    """Yield the outcomes of the simulated schedules, then of the real ones."""
    for seed in range(options.seed, options.seed + options.simulated):
        world = play(seed, options.events)
        write_run(world, folder / f"simulated-{seed}")
        yield verify(folder / f"simulated-{seed}", "simulated", seed, world.events)
    for seed in range(options.seed, options.seed + options.partial):
        yield partial(seed, "partial", PartialFaultWorld)
    for seed in range(options.seed, options.seed + options.suspicion):
        yield partial(seed, "suspicion", SuspicionWorld)
    if options.real:
        data = small_data(folder, samples=400)
        with running_etcd(folder) as etcd:
            for seed in range(options.seed, options.seed + options.real):
                yield real(folder / f"real-{seed}", etcd, data, seed, options.events)


def partial(seed: int, kind: str, world_type: type[PartialFaultWorld]) -> ScheduleOutcome:
    """Run one simulated schedule of partial faults and check the invariants of recovery."""
    try:
        world = play_partial(seed, 1 + seed % 2, world_type, coordinators=seed % 3)
    except AssertionError as violation:
        return ScheduleOutcome(kind, seed, 0, 0, 0, str(violation), right=False)
    steps = max(len(agent.worker.state or ()) for agent in world.started_agents())
    return ScheduleOutcome(kind, seed, MOVES, 0, steps, "all invariants hold", right=True)


def verify(run: Path, kind: str, seed: int, events: int) -> ScheduleOutcome:
    """Run `trainer.verify` on a run in a separate process; return its result."""
    result = subprocess.run(
        [sys.executable, "-m", "trainer.verify", str(run)],
        check=False,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    output = (result.stdout + result.stderr).strip()
    counts = re.search(r"(\d+) commits, the last of step (\d+)", output)
    commits, steps = map(int, counts.groups()) if counts else (0, 0)
    return ScheduleOutcome(kind, seed, events, commits, steps, output, right=result.returncode == 0)


def real(folder: Path, etcd: str, data: Path, seed: int, events: int) -> ScheduleOutcome:
    """Run a job of three nodes through a number of events."""
    folder.mkdir()
    line = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    line += ["--global-batch", "12", "--epochs", "100000", "--checkpoint-seconds", "1"]
    nodes = Nodes(folder, etcd, line, job=f"schedule-{seed}-{os.getpid()}")
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
    """Lose one or two nodes at the same time and restart them; return the number of events."""
    lost = [(rng.choice(KINDS), name) for name in rng.sample(NAMES, rng.choice([1, 1, 1, 2]))]
    time.sleep(rng.uniform(0, 1.5))
    generation = nodes.journal("step")[-1]["generation"]
    for kind, name in lost:
        act(nodes, kind, name)
        time.sleep(rng.choice([0, 0, 0.3]))
    absent = sum(kind != "kill" for kind, _ in lost)  # a killed worker is soon replaced
    nodes.next_step_where(
        lambda step: step["generation"] > generation and step["world_size"] <= len(NAMES) - absent,
        START_SECONDS,
        "the others continue",
    )
    for kind, name in lost:
        if kind == "freeze":
            nodes.signal_all(name, signal.SIGCONT)
        elif kind != "kill":
            nodes.start(name)
    nodes.next_step(time.time(), len(NAMES), START_SECONDS)
    return 2 * len(lost)


def act(nodes: Nodes, kind: str, name: str) -> None:
    """Inject one loss."""
    acts: dict[str, Callable[[], None]] = {
        "kill": lambda: os.kill(nodes.worker(name), signal.SIGKILL),
        "vanish": lambda: nodes.signal_all(name, signal.SIGKILL),
        "freeze": lambda: nodes.signal_all(name, signal.SIGSTOP),
        "drain": lambda: nodes.signal_agent(name, signal.SIGTERM),
    }
    acts[kind]()


if __name__ == "__main__":
    main()
