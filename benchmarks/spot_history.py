"""Measure goodput over a compressed spot history: real agents, workers and etcd on loopback.

    python3 -m benchmarks.spot_history                                   # 10 minutes, 34 events
    python3 -m benchmarks.spot_history --minutes 1 --events 5 --seed 2   # a short run

A seeded plan removes and returns machines, one change about every 18 s; a real spot fleet has about one per hour.

    kill     SIGKILL to only a worker process; its node stays and starts a new process
    vanish   SIGKILL to all processes of a node, without notice
    freeze   SIGSTOP to every process of a node; `thaw` continues them
    drain    SIGTERM to the node's agent, as a kubelet does
    return   the node of a `vanish` or a `drain` starts again

The history begins when all workers train. At its end all nodes are drained, `trainer.verify` checks
that no sample is missing or was trained twice, and the accounting in the journals is reported
(`everstep.cli.report.report`, as `everstep report` does).
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.progress import track
from benchmarks.schedules import KINDS, act
from everstep.cli.report.goodput import counted_steps
from everstep.cli.report.readers import FolderReader
from everstep.cli.report.report import Report, build
from everstep.cli.report.run_record import RunRecord
from everstep.cli.report.screens import report_screen
from tests.trainer.elastic.nodes import NAMES, Nodes, running_etcd, small_data
from tests.trainer.verification import run_verify

START_SECONDS = 300
END_SECONDS = 60
MIN_AWAY_SECONDS = 5.0
RETURN_KINDS = {"vanish": "return", "drain": "return", "freeze": "thaw"}
"""Kind of loss -> kind of return; a node whose worker was killed has not left."""


@dataclass(frozen=True)
class PlannedEvent:
    """An event of the plan: its time in the history in seconds, its kind and its node."""

    at: float
    kind: str
    node: str


def plan(seed: int, seconds: float, events: int) -> list[PlannedEvent]:
    """Return a plan of at most `events` losses and returns of nodes, in which at least one node remains.

    Pure: the same seed returns the same plan. Kinds of loss take turns in random order, so that each
    occurs in a short history as well.
    """
    rng = random.Random(seed)  # noqa: S311 - reproducible on purpose
    absences: dict[str, tuple[float, str]] = {}
    kinds: list[str] = []
    planned_events: list[PlannedEvent] = []
    for number in range(events):
        event_time = seconds * (number + rng.uniform(0.3, 0.7)) / events
        returnable_nodes = [
            name for name, (since, _) in absences.items() if event_time - since >= MIN_AWAY_SECONDS
        ]
        present_nodes = [name for name in NAMES if name not in absences]
        if returnable_nodes and (len(present_nodes) == 1 or rng.random() < 0.6):
            name = rng.choice(returnable_nodes)
            kind = RETURN_KINDS[absences.pop(name)[1]]
            planned_events.append(PlannedEvent(event_time, kind, name))
        elif len(present_nodes) > 1:
            kinds = kinds or rng.sample(KINDS, len(KINDS))
            kind, name = kinds.pop(), rng.choice(present_nodes)
            planned_events.append(PlannedEvent(event_time, kind, name))
            if kind in RETURN_KINDS:
                absences[name] = (event_time, kind)
    return planned_events


class History:
    """Replay of a plan on nodes, with a record of each event and its time."""

    def __init__(self, nodes: Nodes, events: Path) -> None:
        self._nodes, self._events = nodes, events

    def run(self, planned_events: Sequence[PlannedEvent], seconds: float) -> tuple[float, float]:
        """Wait until all nodes train, run the plan, and return its start and end in Unix seconds."""
        for name in NAMES:
            self._nodes.start(name)
        self._nodes.next_step(0, len(NAMES), START_SECONDS)
        started_at = time.time()
        for event in track(planned_events, "events", len(planned_events)):
            time.sleep(max(0.0, started_at + event.at - time.time()))
            self._apply(event)
        time.sleep(max(0.0, started_at + seconds - time.time()))
        return started_at, time.time()

    def end(self) -> None:
        """Drain all nodes; the last node saves its state."""
        for name in NAMES:
            self._nodes.signal_all(name, signal.SIGCONT)
            self._nodes.signal_agent(name, signal.SIGTERM)
        for name in NAMES:
            self._nodes.exit_code(name, END_SECONDS)

    def _apply(self, event: PlannedEvent) -> None:
        nodes, name = self._nodes, event.node
        if event.kind == "kill":  # a node that has just returned may have no worker yet
            name = next(iter(sorted(self._training(), key=lambda other: other != name)))
        entry = {"at": round(time.time(), 4), "kind": event.kind, "node": f"node-{name}"}
        if event.kind in KINDS:
            act(nodes, event.kind, name)
        elif event.kind == "thaw":
            nodes.signal_all(name, signal.SIGCONT)
        else:
            nodes.start(name)
        with self._events.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        print(f"{event.at:6.1f} s  {event.kind:7} {name}", file=sys.stderr, flush=True)

    def _training(self) -> set[str]:
        """Return the nodes whose workers took the last step."""
        generation = self._nodes.journal("step")[-1]["generation"]
        entries = self._nodes.journal("generation")
        return {str(entry["file"]) for entry in entries if entry["generation"] == generation}


def goodput_after_start(run: RunRecord, started_at: float, ended_at: float) -> float:
    """Return the share of counted steps in the duration of the history, which excludes the first start-up."""
    steps = counted_steps(run.steps)
    counted_seconds = sum(step.seconds for step in steps if started_at < step.at <= ended_at)
    return counted_seconds / (ended_at - started_at)


def record_until(run: RunRecord, ended_at: float) -> RunRecord:
    """Return the run as of a time."""
    return RunRecord(
        tuple(entry for entry in run.entries if entry.at <= ended_at),
        tuple(event for event in run.events if event.at <= ended_at),
        blocks=tuple(block for block in run.blocks if block.at <= ended_at),
    )


def verify(run: Path) -> str:
    """Return the result of `trainer.verify`."""
    result = run_verify(run)
    return (result.stdout + result.stderr).strip()


def main() -> None:
    """Run a history and report its goodput."""
    options = parse()
    seconds = options.minutes * 60
    planned_events = plan(options.seed, seconds, options.events)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        command_line = [
            "--model",
            options.model,
            "--dataset",
            "fashion-mnist",
            "--epochs",
            "100000",
        ]
        command_line += ["--data", str(small_data(folder, samples=12_000)), "--mode", options.mode]
        command_line += ["--global-batch", str(options.global_batch)]
        command_line += ["--checkpoint-seconds", str(options.checkpoint_seconds)]
        with running_etcd(folder) as etcd:
            nodes = Nodes(folder, etcd, command_line)
            history = History(nodes, folder / "events.jsonl")
            try:
                started_at, ended_at = history.run(planned_events, seconds)
                loads = (load, os.getloadavg()[2])
                history.end()
            finally:
                nodes.close()
        record = FolderReader(nodes.run, folder / "events.jsonl").read()
        show(
            record_until(record, ended_at),
            started_at,
            ended_at,
            verify(nodes.run),
            loads,
            as_json=options.json,
        )
        if options.keep:
            shutil.copytree(nodes.run, options.keep / "run")
            shutil.copy(folder / "events.jsonl", options.keep)


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--events", type=int, default=34, help="maximum number of events")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", default="live", choices=["live", "exact"])
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--global-batch", type=int, default=12)
    parser.add_argument("--checkpoint-seconds", type=float, default=30.0)
    parser.add_argument("--keep", type=Path, help="copy the run and its events into this folder")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def show(
    run: RunRecord,
    started_at: float,
    ended_at: float,
    verification: str,
    loads: tuple[float, float],
    *,
    as_json: bool,
) -> None:
    """Print the figures as text with the report, or as JSON."""
    report = build(run)
    figures = {
        "goodput_of_the_history": round(goodput_after_start(run, started_at, ended_at), 4),
        "history_seconds": round(ended_at - started_at, 1),
        "events": dict(Counter(event.kind for event in run.events)),
        "load_before": round(loads[0], 2),
        "load_of_the_last_15_minutes": round(loads[1], 2),
        "verified": verification,
    }
    if as_json:
        print(json.dumps({**figures, "report": report.to_json()}, indent=1))
        return
    Console(width=110).print(report_screen(report, run, ended_at, 110))
    print(
        f"\n{sentence(report, figures)}\nload {loads[0]:.1f} before; {loads[1]:.1f} over the last 15 minutes"
    )


def sentence(report: Report, figures: dict[str, object]) -> str:
    """Return the result as a sentence."""
    overall = report.goodput.share if report.goodput else 0.0
    return (
        f"goodput {figures['goodput_of_the_history']} over {figures['history_seconds']} s, {overall:.4f} with the "
        f"first start-up; events {figures['events']}\n{figures['verified']}"
    )


if __name__ == "__main__":
    main()
