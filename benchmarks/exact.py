"""Check that a run in `exact` mode is bit-identical to an undisturbed run after any sequence of group changes.

    python3 -m benchmarks.exact --schedules 20
    python3 -m benchmarks.exact --schedules 2 --models resnet18 --steps 20     # a short run

For each model, one worker trains undisturbed; then the same run goes through seeded schedules on one to four
nodes (real agents, workers and etcd on loopback): after about each step, one of them is killed, frozen or
drained, even if it is the only node that trains, or a node is started. The sha256 of parameters, buffers,
optimizer state and fixed-point ranges must equal the first run's after each schedule. Exits with 1 if one differs.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.schedules import KINDS, act, report_outcomes
from tests.journals import completed_steps
from tests.trainer.elastic.nodes import Nodes, running_etcd, small_data
from tests.waiting import wait_until
from trainer.settings import any_result

NAMES = ("w0", "w1", "w2", "w3")
RUN_SECONDS = 900.0


@dataclass(frozen=True)
class ExactOutcome:
    """Result of one schedule."""

    model: str
    seed: int
    events: dict[str, int]  # number by kind
    group_sizes: list[int]  # sizes of the groups that took steps
    repeated: int  # steps that were computed again
    sha256: str  # of the final state
    equal: bool  # whether `sha256` is the undisturbed run's


def main() -> None:
    """Run all schedules and report their outcomes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--schedules", type=int, default=20, help="number of schedules for each model"
    )
    parser.add_argument("--models", nargs="+", default=["resnet18", "efficientnet_b0"])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="seed of the first schedule; each further schedule adds 1",
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        all_equal = report_outcomes(
            run_schedules(Path(scratch), options),
            sentence,
            lambda outcome: outcome.equal,
            "not bit-identical to the undisturbed run",
            count=len(options.models) * options.schedules,
            as_json=options.json,
        )
    sys.exit(0 if all_equal else 1)


def sentence(outcome: ExactOutcome) -> str:
    """Return one result as a sentence."""
    events = ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.events.items()))
    return (
        f"{outcome.model} {outcome.seed}: {'equal' if outcome.equal else 'DIFFERENT'} {outcome.sha256[:16]}; "
        f"{sum(outcome.events.values())} events ({events}); groups of {outcome.group_sizes}"
    )


def run_schedules(folder: Path, options: argparse.Namespace) -> Iterator[ExactOutcome]:
    """Yield the result of each schedule, compared with its model's undisturbed run."""
    data = small_data(folder, samples=600)
    with running_etcd(folder) as etcd:
        for model in options.models:
            arguments = ["--model", model, "--dataset", "fashion-mnist", "--data", str(data)]
            arguments += ["--global-batch", "24", "--shard-size", "4", "--mode", "exact"]
            arguments += ["--max-steps", str(options.steps), "--checkpoint-seconds", "1"]
            nodes = start_job(folder, etcd, arguments, f"{model}-alone", NAMES[:1])
            expected, _ = wait_finished(nodes)
            print(f"{model} undisturbed: {expected}", file=sys.stderr, flush=True)
            for seed in range(options.seed, options.seed + options.schedules):
                yield run_schedule(folder, etcd, arguments, seed, expected)


def start_job(
    folder: Path, etcd: str, arguments: list[str], job: str, names: Sequence[str]
) -> Nodes:
    """Start a job on the nodes with these names."""
    (folder / job).mkdir()
    nodes = Nodes(folder / job, etcd, arguments, job=job, max_members=len(NAMES))
    for name in names:
        nodes.start(name)
    return nodes


def wait_finished(nodes: Nodes) -> tuple[str, list[int]]:
    """Wait for the end of a run and close its nodes; return its sha256 and the sizes of the groups that took steps."""
    try:
        wait_until(lambda: any_result(nodes.run), "the run is complete", RUN_SECONDS)
    finally:
        nodes.close()
    result = any_result(nodes.run)
    assert result is not None, "it existed before this check"
    return str(result["sha256"]), sorted({step["world_size"] for step in nodes.journal("step")})


def run_schedule(
    folder: Path, etcd: str, arguments: list[str], seed: int, expected: str
) -> ExactOutcome:
    """Run one seeded schedule."""
    rng = random.Random(seed)  # noqa: S311 - a schedule is not secret
    model = arguments[1]
    first_names = NAMES[: rng.randint(1, len(NAMES))]
    nodes = start_job(folder, etcd, arguments, f"{model}-{seed}", first_names)
    try:
        events = disrupt(nodes, rng, list(first_names))
    except BaseException:
        nodes.close()
        raise
    sha256, sizes = wait_finished(nodes)
    steps = completed_steps(nodes.journal("step"))
    repeated = len(steps) - len(set(steps))
    return ExactOutcome(model, seed, events, sizes, repeated, sha256, sha256 == expected)


def disrupt(nodes: Nodes, rng: random.Random, running_nodes: list[str]) -> dict[str, int]:
    """Stop, freeze, resume and start nodes until the run is complete; return the number of events by kind."""
    event_by_missing_node: dict[str, str] = {}
    events: dict[str, int] = {}
    deadline = time.monotonic() + RUN_SECONDS
    disrupted_at = 0.0
    while wait_for_step(nodes, disrupted_at) and time.monotonic() < deadline:
        time.sleep(rng.uniform(0, 1.5))
        disrupted_at = time.time()
        stopped_nodes = [name for name in NAMES if name not in running_nodes]
        if stopped_nodes and (len(running_nodes) == 1 or rng.random() < 0.5):
            name = rng.choice(stopped_nodes)
            running_nodes.append(name)
            if event_by_missing_node.pop(name, "") == "freeze":
                kind = "thaw"
                nodes.signal_all(name, signal.SIGCONT)
            else:
                kind = "start"
                nodes.start(name)
        else:
            name, kind = rng.choice(running_nodes), rng.choice(KINDS)
            act(nodes, kind, name)
            if kind != "kill":
                running_nodes.remove(name)
                event_by_missing_node[name] = kind
        events[kind] = events.get(kind, 0) + 1
    for name, kind in event_by_missing_node.items():
        if kind == "freeze":
            nodes.signal_all(name, signal.SIGCONT)
    return events


def wait_for_step(nodes: Nodes, event_time: float) -> bool:
    """Wait for a step that ends after a time; return False if the run is complete instead."""
    wait_until(
        lambda: (
            any_result(nodes.run) or any(step["at"] > event_time for step in nodes.journal("step"))
        ),
        "the run continues",
        RUN_SECONDS,
    )
    return not any_result(nodes.run)


if __name__ == "__main__":
    main()
