"""Goodput over a compressed spot history, measured: real agents, workers and etcd on loopback.

    python3 -m benchmarks.spot_history                                   # 10 minutes, 34 events
    python3 -m benchmarks.spot_history --minutes 1 --events 5 --seed 2   # to try it
    python3 -m benchmarks.spot_history --mode restart                    # the older way, for comparison

Machines come and go by a seeded plan, one change every 18 s or so; a real spot fleet has one an hour.

    kill     SIGKILL to a worker process alone; its node stays and starts another
    vanish   SIGKILL to every process of a node at once; nobody says goodbye
    freeze   SIGSTOP to every process of a node; `thaw` lets them go on
    drain    SIGTERM to the node's agent, as a kubelet does
    return   the node of a `vanish` or a `drain` starts again

The history begins when all workers train. At its end all nodes are told to go, `trainer.verify` checks
that no sample is missing or was taken twice, and the accounting in the journals says where the seconds
went (`everstep.cli.report`, as `everstep report` does).
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks.progress import shown
from everstep.cli.report import Report, build
from everstep.cli.run import Run
from everstep.cli.screen import report_screen
from everstep.cli.seconds import counted_steps
from everstep.cli.sources import Folder
from tests.trainer.nodes import NAMES, REPOSITORY, Nodes, running_etcd, small_data

START_SECONDS = 300
END_SECONDS = 60
LEAST_AWAY_SECONDS = 5.0
BACK = {"vanish": "return", "drain": "return", "freeze": "thaw"}
"""How a node comes back; one whose worker was killed alone never left."""


@dataclass(frozen=True)
class Planned:
    """At so many seconds of the history this happens to a node."""

    at: float
    kind: str
    node: str


def plan(seed: int, seconds: float, events: int) -> list[Planned]:
    """A history: at even odds a node goes or one comes back, and one always stays.

    Pure: the same seed gives the same history. Kinds of loss take turns in random order, so that each
    has its share of a short history as well.
    """
    chance = random.Random(seed)  # noqa: S311 - to be repeated at will
    away: dict[str, tuple[float, str]] = {}
    kinds: list[str] = []
    found: list[Planned] = []
    for number in range(events):
        at = seconds * (number + chance.uniform(0.3, 0.7)) / events
        back = [name for name, (since, _) in away.items() if at - since >= LEAST_AWAY_SECONDS]
        here = [name for name in NAMES if name not in away]
        if back and (len(here) == 1 or chance.random() < 0.6):
            name = chance.choice(back)
            found.append(Planned(at, BACK[away.pop(name)[1]], name))
        elif len(here) > 1:
            kinds = kinds or chance.sample(("kill", "vanish", "freeze", "drain"), 4)
            kind, name = kinds.pop(), chance.choice(here)
            found.append(Planned(at, kind, name))
            if kind in BACK:
                away[name] = (at, kind)
    return found


class History:
    """Lets a plan happen to nodes, and writes down what was done and when."""

    def __init__(self, nodes: Nodes, events: Path) -> None:
        self._nodes, self._events = nodes, events

    def live(self, planned: Sequence[Planned], seconds: float) -> tuple[float, float]:
        """From the moment on that all train; when the history began and ended, in unix seconds."""
        for name in NAMES:
            self._nodes.start(name)
        self._nodes.next_step(0, len(NAMES), START_SECONDS)
        began = time.time()
        for one in shown(planned, "events", len(planned)):
            time.sleep(max(0.0, began + one.at - time.time()))
            self._happen(one)
        time.sleep(max(0.0, began + seconds - time.time()))
        return began, time.time()

    def end(self) -> None:
        """All nodes go; the last one saves what was trained."""
        for name in NAMES:
            self._nodes.signal_all(name, signal.SIGCONT)
            self._nodes.tell(name, signal.SIGTERM)
        for name in NAMES:
            self._nodes.exit_code(name, END_SECONDS)

    def _happen(self, one: Planned) -> None:
        nodes, name = self._nodes, one.node
        if one.kind == "kill":  # a node that has just come back may have no worker yet
            name = next(iter(sorted(self._training(), key=lambda other: other != name)))
        acts: dict[str, Callable[[], None]] = {
            "kill": lambda: os.kill(nodes.worker(name), signal.SIGKILL),
            "vanish": lambda: nodes.signal_all(name, signal.SIGKILL),
            "freeze": lambda: nodes.signal_all(name, signal.SIGSTOP),
            "drain": lambda: nodes.tell(name, signal.SIGTERM),
            "thaw": lambda: nodes.signal_all(name, signal.SIGCONT),
            "return": lambda: nodes.start(name),
        }
        said = {"at": round(time.time(), 4), "kind": one.kind, "node": f"node-{name}"}
        acts[one.kind]()
        with self._events.open("a") as file:
            file.write(json.dumps(said) + "\n")
        print(f"{one.at:6.1f} s  {one.kind:7} {name}", file=sys.stderr, flush=True)

    def _training(self) -> set[str]:
        """The nodes whose workers took the last step."""
        newest = self._nodes.journal("step")[-1]["generation"]
        groups = self._nodes.journal("generation")
        return {str(entry["file"]) for entry in groups if entry["generation"] == newest}


def window(run: Run, began: float, ended: float) -> float:
    """Goodput of the history alone: steps that counted over its seconds, the first start-up left out."""
    good = sum(s.seconds for s in counted_steps(run.steps).values() if began < s.at <= ended)
    return good / (ended - began)


def until(run: Run, ended: float) -> Run:
    """The run as it was at a time."""
    return Run(
        tuple(line for line in run.lines if line.at <= ended),
        tuple(event for event in run.events if event.at <= ended),
    )


def verify(run: Path) -> str:
    """What `trainer.verify` says, at best that every sample was taken exactly once."""
    done = subprocess.run(
        [sys.executable, "-m", "trainer.verify", str(run)],
        check=False,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    return (done.stdout + done.stderr).strip()


def main() -> None:
    """Live through a history, and say what became of its seconds."""
    options = parse()
    seconds = options.minutes * 60
    planned = plan(options.seed, seconds, options.events)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        line = ["--model", options.model, "--dataset", "fashion-mnist", "--epochs", "100000"]
        line += ["--data", str(small_data(folder, samples=12_000)), "--mode", options.mode]
        line += ["--global-batch", str(options.global_batch)]
        line += ["--checkpoint-seconds", str(options.checkpoint_seconds)]
        with running_etcd(folder) as etcd:
            nodes = Nodes(folder, etcd, line)
            history = History(nodes, folder / "events.jsonl")
            try:
                began, ended = history.live(planned, seconds)
                loads = (load, os.getloadavg()[2])
                history.end()
            finally:
                nodes.close()
        whole = Folder(nodes.run, folder / "events.jsonl").read()
        show(until(whole, ended), began, ended, verify(nodes.run), loads, as_json=options.json)
        if options.keep:
            shutil.copytree(nodes.run, options.keep / "run")
            shutil.copy(folder / "events.jsonl", options.keep)


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--events", type=int, default=34, help="how many moments of change")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mode", default="live")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--global-batch", type=int, default=12)
    parser.add_argument("--checkpoint-seconds", type=float, default=30.0)
    parser.add_argument("--keep", type=Path, help="copy the run and its events into this folder")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def show(
    run: Run,
    began: float,
    ended: float,
    verified: str,
    loads: tuple[float, float],
    *,
    as_json: bool,
) -> None:
    """The figures, as text with the report's screen, or as JSON."""
    report = build(run)
    figures = {
        "goodput_of_the_history": round(window(run, began, ended), 4),
        "history_seconds": round(ended - began, 1),
        "events": dict(Counter(event.kind for event in run.events)),
        "load_before": round(loads[0], 2),
        "load_of_the_last_15_minutes": round(loads[1], 2),
        "verified": verified,
    }
    if as_json:
        print(json.dumps({**figures, "report": report.to_json()}, indent=1))
        return
    Console(width=110).print(report_screen(report, run, ended, 110))
    print(
        f"\n{sentence(report, figures)}\nload {loads[0]:.1f} before; {loads[1]:.1f} over the last 15 minutes"
    )


def sentence(report: Report, figures: dict[str, object]) -> str:
    """What was found, in words."""
    of_all = report.goodput.share if report.goodput else 0.0
    return (
        f"goodput {figures['goodput_of_the_history']} over {figures['history_seconds']} s, {of_all:.4f} with the "
        f"first start-up; events {figures['events']}\n{figures['verified']}"
    )


if __name__ == "__main__":
    main()
