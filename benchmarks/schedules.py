"""Every sample exactly once: seeded schedules of deaths, freezes, drains and returns, each judged by `trainer.verify`.

    python3 -m benchmarks.schedules --simulated 200        # real state machines, simulated machines
    python3 -m benchmarks.schedules --real 20              # real agents, workers and etcd on loopback
    python3 -m benchmarks.schedules --simulated 200 --real 20 --events 10 --json

A schedule has at least --events events; a return counts as one. A real one ends with all nodes told
to go, so that the last one saves what it has; then its ledger is verified by a process of its own.
Exits with 1 where a sample was missing or trained twice.
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

from benchmarks.progress import shown
from tests.trainer.nodes import NAMES, REPOSITORY, Nodes, running_etcd, small_data
from tests.unit.elastic.ledger_simulation import play, write_run

START_SECONDS = 300.0
KINDS = ("kill", "vanish", "freeze", "drain")


@dataclass(frozen=True)
class Outcome:
    """One schedule."""

    kind: str
    seed: int
    events: int
    commits: int
    steps: int
    verdict: str
    right: bool


def main() -> None:
    """Play them all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--simulated", type=int, default=0)
    parser.add_argument("--real", type=int, default=0)
    parser.add_argument("--events", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the first; the others follow")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        right = told(
            played(Path(scratch), options),
            lambda one: f"{one.kind} {one.seed}: {one.events} events, {one.verdict}",
            lambda one: one.right,
            "with a sample missing or trained twice",
            count=options.simulated + options.real,
            as_json=options.json,
        )
    sys.exit(0 if right else 1)


def told(
    outcomes: Iterable[Any],
    sentence: Callable[[Any], str],
    right: Callable[[Any], bool],
    fault: str,
    *,
    count: int,
    as_json: bool,
) -> bool:
    """Print each outcome as it comes, and how many have the fault; or all as JSON. Whether none has."""
    seen = []
    for outcome in shown(outcomes, "schedules", count):
        seen.append(outcome)
        if not as_json:
            print(sentence(outcome), flush=True)
    wrong = sum(not right(outcome) for outcome in seen)
    if as_json:
        print(json.dumps([asdict(outcome) for outcome in seen], indent=1))
    else:
        print(f"{len(seen)} schedules, {wrong} {fault}")
    return not wrong


def played(folder: Path, options: argparse.Namespace) -> Iterator[Outcome]:
    """The simulated ones, then the real ones."""
    for seed in range(options.seed, options.seed + options.simulated):
        world = play(seed, options.events)
        write_run(world, folder / f"simulated-{seed}")
        yield judge(folder / f"simulated-{seed}", "simulated", seed, world.events)
    if options.real:
        data = small_data(folder, samples=400)
        with running_etcd(folder) as etcd:
            for seed in range(options.seed, options.seed + options.real):
                yield real(folder / f"real-{seed}", etcd, data, seed, options.events)


def judge(run: Path, kind: str, seed: int, events: int) -> Outcome:
    """What `trainer.verify` says of a run, in a process of its own."""
    ended = subprocess.run(
        [sys.executable, "-m", "trainer.verify", str(run)],
        check=False,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    said = (ended.stdout + ended.stderr).strip()
    counts = re.search(r"(\d+) commits, the last of step (\d+)", said)
    commits, steps = map(int, counts.groups()) if counts else (0, 0)
    return Outcome(kind, seed, events, commits, steps, said, right=ended.returncode == 0)


def real(folder: Path, etcd: str, data: Path, seed: int, events: int) -> Outcome:
    """A job of three nodes through so many events."""
    folder.mkdir()
    line = ["--model", "resnet18", "--dataset", "fashion-mnist", "--data", str(data)]
    line += ["--global-batch", "12", "--epochs", "100000", "--checkpoint-seconds", "1"]
    nodes = Nodes(folder, etcd, line, job=f"schedule-{seed}-{os.getpid()}")
    numbers = random.Random(seed)  # noqa: S311 - a schedule is no secret
    try:
        for name in NAMES:
            nodes.start(name)
        nodes.next_step(0, 3, START_SECONDS)
        seen = 0
        while seen < events:
            seen += lose_and_regain(nodes, numbers)
        for name in NAMES:
            nodes.tell(name, signal.SIGTERM)
        for name in NAMES:
            nodes.exit_code(name, 60)
    finally:
        nodes.close()
    return judge(nodes.run, "real", seed, seen)


def lose_and_regain(nodes: Nodes, numbers: random.Random) -> int:
    """One or two nodes are lost at once, then come back; how many events that were."""
    lost = [
        (numbers.choice(KINDS), name)
        for name in numbers.sample(NAMES, numbers.choice([1, 1, 1, 2]))
    ]
    time.sleep(numbers.uniform(0, 1.5))
    generation = nodes.journal("step")[-1]["generation"]
    for kind, name in lost:
        act(nodes, kind, name)
        time.sleep(numbers.choice([0, 0, 0.3]))
    away = sum(kind != "kill" for kind, _ in lost)  # a killed worker is soon replaced
    nodes.next_step_where(
        lambda step: step["generation"] > generation and step["world_size"] <= len(NAMES) - away,
        START_SECONDS,
        "the others go on",
    )
    for kind, name in lost:
        if kind == "freeze":
            nodes.signal_all(name, signal.SIGCONT)
        elif kind != "kill":
            nodes.start(name)
    nodes.next_step(time.time(), len(NAMES), START_SECONDS)
    return 2 * len(lost)


def act(nodes: Nodes, kind: str, name: str) -> None:
    """One loss."""
    acts: dict[str, Callable[[], None]] = {
        "kill": lambda: os.kill(nodes.worker(name), signal.SIGKILL),
        "vanish": lambda: nodes.signal_all(name, signal.SIGKILL),
        "freeze": lambda: nodes.signal_all(name, signal.SIGSTOP),
        "drain": lambda: nodes.tell(name, signal.SIGTERM),
    }
    acts[kind]()


if __name__ == "__main__":
    main()
