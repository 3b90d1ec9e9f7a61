"""Measure moves between zones on the twin, and compare the simulator of `everstep plan` with the measured run.

    python -m benchmarks.moves                   # about 15 minutes: 6 hours of three zones, 30 times as fast
    python -m benchmarks.moves --seed 21446 --keep DIR

Brings up `eks-prod` on the twin with a pool in each of three zones, replays a generated history of its spot market with
`everstep market replay` while real trainers train, and waits until the job ends. Then it reports

1. whether `trainer.verify` finds each sample exactly once;
2. each move, its reason, and what it cost the group;
3. duration and goodput compared with the simulator's for the same history, work and policy intervals.

The three workers share this machine's cores; `tests/e2e/paced.py` makes each take the same time for a sample.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from cloudtwin.images.confine import KILLED_WITH_PARENT
from cloudtwin.nodes import Twin
from cloudtwin.nodes.layout import Layout

from controller.placement_settings import PlacementSettings
from everstep.capacity.generator import fit, generate
from everstep.capacity.history import CapacityHistory
from everstep.capacity.job import IDLE, STATE_BYTES, JobModel, Prices
from everstep.capacity.on_demand import never
from everstep.capacity.placement import PlacementConfig
from everstep.capacity.simulator import Outcome, parameters_of, simulate
from everstep.catalog.names import PLACEMENT_ANNOTATION
from everstep.catalog.units import HOUR_SECONDS
from everstep.cli.report.machines import MachineLog, ReportedMachine
from everstep.cli.report.moves import moves_file
from everstep.cli.report.readers import KEPT_MOVES, FolderReader
from everstep.cli.report.run_record import RunRecord
from everstep.goodput import ChangeCost, live_design
from everstep.progress import Silent
from tests.e2e.life_cycle import EVERSTEP, JOB_PATH, copy_project
from tests.e2e.paced import PacedCycle, paced_job
from tests.trainer.verification import run_verify

STACK = "eks-prod"
ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
MACHINES = 3
HOURS = 6.0
GAP_SECONDS = 900.0
"""Duration of a tick. The simulator requires a tick at least as long as the start of a machine."""

SEED = 31861
SPEED = 30.0
SAMPLE_SECONDS = 0.02
"""Time of one worker for one sample, about four times its compute time."""

GLOBAL_BATCH = 120
CHECKPOINT_SECONDS = 5.0
UP_SECONDS, TRAIN_SECONDS, END_SECONDS = 900, 600, 3600

POLICY_SECONDS = {
    "shortSeconds": PlacementSettings.short_seconds,
    "moveIntervalSeconds": PlacementSettings.move_interval_seconds,
    "retrySeconds": PlacementSettings.retry_seconds,
}
"""Defaults of the policy's intervals, which are compressed like the market."""

MACHINE_SECONDS = {
    "startSeconds": 30.0,
    "furtherNodeSeconds": 6.0,
    "moveSeconds": 120.0,
}
"""Times that depend on real machines and programs, which are not compressed."""


@dataclass(frozen=True)
class Comparison:
    """One figure of the measured run and of the simulator."""

    name: str
    measured: float
    simulated: float

    @property
    def ratio(self) -> float:
        """The simulated value as a multiple of the measured value."""
        return self.simulated / self.measured if self.measured else float("inf")


@dataclass(frozen=True, kw_only=True)
class Result:
    """Results of the benchmark.

    Attributes:
        verify_output: last lines of `trainer.verify`.
        exactly_once: whether it found each sample exactly once.
        moves: moves of the report, with the number of machines that trained in the old zone at the decision.
        compared: duration and goodput.
        simulated_moves: moves of the simulator.
        start_seconds: median time from a decision to move until a worker of the new zone trains.
        load: average load of this machine over the last 15 minutes.
    """

    verify_output: str
    exactly_once: bool
    moves: list[dict[str, Any]]
    compared: list[Comparison]
    simulated_moves: int
    start_seconds: float
    load: float


def market(seed: int) -> CapacityHistory:
    """Return the generated history of all zones for `HOURS`."""
    generated = generate(fit(), seed=seed, hours=HOURS, machines=MACHINES, zones=ZONES)
    return generated.sampled(GAP_SECONDS)


def predict(
    history: CapacityHistory,
    *,
    speed: float,
    work: float,
    step_seconds: float,
    start_seconds: float,
) -> Outcome:
    """Return the simulator's outcome, in real seconds, for a group that starts when the history begins.

    Args:
        history: the history; its last tick is repeated until the history is twice as long.
        speed: seconds of the history in one real second.
        work: machine-seconds of training.
        step_seconds: duration of a step of the complete group.
        start_seconds: time from the request of a machine until it trains.
    """
    gap = history.gap_seconds / speed
    machines = history.machines + history.machines[-1:] * len(history.machines)
    compressed_history = CapacityHistory(history.zones, gap, machines)
    costs = live_design(
        state_bytes=STATE_BYTES,
        step_seconds=step_seconds,
        bytes_per_second=1e9,
        checkpoint_seconds=CHECKPOINT_SECONDS,
    )
    boot = ChangeCost(max(start_seconds - costs.start_up.seconds, 0.0), "measured in this run")
    idle = ChangeCost(IDLE.seconds / speed, "the twin's autoscaler, in the time of the market")
    job = JobModel(
        work=work,
        machines=MACHINES,
        prices=Prices(1.0, 3.0),
        design=costs,
        boot=boot,
        idle=idle,
    )
    placement = PlacementConfig(
        machines=MACHINES,
        short_seconds=POLICY_SECONDS["shortSeconds"] / speed,
        move_interval_seconds=POLICY_SECONDS["moveIntervalSeconds"] / speed,
        start_seconds=job.start_seconds,
    )
    return simulate(compressed_history, job, parameters_of(job, gap), placement, never)


@dataclass
class MovingStack(PacedCycle):
    """The stack with three pools, and its market."""

    speed: float = SPEED

    def declare(self) -> None:
        """Declare a pool in each zone and a short, paced training in the stack file."""
        content = yaml.safe_load(self.stack_file.read_text())
        cluster = content["config"]["everstep:cluster"]
        del cluster["gpuPool"]
        cluster["gpuPools"] = [
            {"name": zone[-1], "zone": zone, "instanceTypes": ["g5.xlarge"], "maxNodes": MACHINES}
            for zone in ZONES
        ]
        self.stack_file.write_text(yaml.safe_dump(content, sort_keys=False))
        self.unprotect()
        self.change(
            job={
                "model": "resnet18", "replicas": MACHINES, "minReplicas": 1, "maxReplicas": MACHINES,
                "epochs": 1, "globalBatch": GLOBAL_BATCH, "learningRate": 0.05,
                "checkpointSeconds": CHECKPOINT_SECONDS, **paced_job(SAMPLE_SECONDS),
            }
        )  # fmt: skip

    def compress_policy(self) -> None:
        """Set the intervals of the controller's policy."""
        times = {name: seconds / self.speed for name, seconds in POLICY_SECONDS.items()}
        settings = {"zones": list(ZONES), **times, **MACHINE_SECONDS}
        annotations = {PLACEMENT_ANNOTATION: json.dumps(settings)}
        self.api().merge(JOB_PATH, {"metadata": {"annotations": annotations}})

    def read(self) -> RunRecord:
        """Return the run so far."""
        reader = FolderReader(self.run_folder, self.twin / "events.jsonl", moves=self.moves)
        return reader.read()

    @property
    def moves(self) -> Path:
        """File with the moves that commands have observed."""
        return moves_file(self.twin, self.run_folder.name)

    def all_train(self) -> bool:
        """Return True if all workers took the newest step."""
        steps = self.read().steps
        return bool(steps) and steps[-1].world_size == MACHINES

    @contextmanager
    def follower(self) -> Iterator[subprocess.Popen[str]]:
        """Run `everstep follow`, which records machines and moves; its lines go to standard error."""
        with subprocess.Popen(
            [*KILLED_WITH_PARENT, EVERSTEP, "follow", "--stack", STACK, "--twin"],
            cwd=self.folder, env=self.environment,
            stdout=sys.stderr, text=True,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:
                process.terminate()

    def train(self, history: CapacityHistory) -> float:
        """Replay the history until the job ends; return the time at which the replay began."""
        trace = self.folder / "market.json"
        data = {"metadata": {"gap_seconds": history.gap_seconds}, "data": history.by_zone()}
        trace.write_text(json.dumps(data))
        with self.follower() as follower:
            self.wait_until("all train", self.all_train, TRAIN_SECONDS)
            started_at = time.time()
            self.run_checked(
                "replay",
                "market",
                "replay",
                "--stack",
                STACK,
                f"--trace={trace}",
                f"--speed={self.speed}",
            )
            self.wait_until("the job ends", lambda: follower.poll() is not None, END_SECONDS)
        return started_at


def joins(run: RunRecord, machines: dict[str, ReportedMachine]) -> list[float]:
    """Return the seconds from each move's decision to the first step with a worker of the new zone, if there is one."""
    seconds = []
    for move in run.moves:
        nodes = {name for name, machine in machines.items() if machine.zone == move.to}
        join_times = (
            step.at for step in run.steps
            if step.at > move.began and nodes & set(run.members(step.generation).values())
        )  # fmt: skip
        if (joined_at := next(join_times, None)) is not None:
            seconds.append(joined_at - move.began)
    return seconds


def training_at(run: RunRecord, time: float) -> int:
    """Return the size of the group that trained at a time; 0 unless it took the steps before and after."""
    before, after = run.step_before(time), run.step_after(time)
    if before is None or after is None or before.generation != after.generation:
        return 0
    return before.world_size


def compare(
    run: RunRecord,
    history: CapacityHistory,
    started_at: float,
    speed: float,
    billed_seconds: float,
    start_seconds: float,
) -> tuple[list[Comparison], Outcome]:
    """Return the figures of the run since `started_at` next to the simulator's, and the simulator's outcome.

    The group was complete when the replay began. The simulated group therefore starts earlier, by the time in which a
    machine starts.
    """
    step_seconds = median(
        step.seconds / step.count for step in run.steps if step.world_size == MACHINES
    )
    steps = max(step.step for step in run.steps) - run.highest_step(started_at)
    work = steps * step_seconds * MACHINES
    outcome = predict(
        history, speed=speed, work=work, step_seconds=step_seconds, start_seconds=start_seconds
    )
    measured_seconds = run.steps[-1].at - started_at
    return [
        Comparison(
            "duration, s", measured_seconds, finished_after(outcome, history, speed) - start_seconds
        ),
        Comparison("goodput", work / billed_seconds, outcome.goodput),
    ], outcome


def finished_after(outcome: Outcome, history: CapacityHistory, speed: float) -> float:
    """Return the simulated duration without half a tick, by which the simulator rounds it up on average."""
    return outcome.seconds - history.gap_seconds / speed / 2


def verify(run: Path) -> tuple[str, bool]:
    """Return the last lines of `trainer.verify`, and whether each sample was trained exactly once."""
    result = run_verify(run)
    lines = (result.stdout + result.stderr).strip().splitlines()
    return "\n".join(lines[-3:]), result.returncode == 0


def main() -> None:
    """Run the benchmark and print its result."""
    options = parse()
    history = market(options.seed)
    scratch = Path(tempfile.mkdtemp(prefix="moves-"))
    stack = MovingStack(STACK, copy_project(scratch), speed=options.speed)
    try:
        stack.declare()
        stack.up_paced(UP_SECONDS)
        stack.compress_policy()
        started_at = stack.train(history)
        show(result(stack, history, started_at), as_json=options.json)
        if options.keep:
            keep(stack, options.keep)
    finally:
        stack.run("down", "--yes", "--stack", STACK, "--twin", seconds=UP_SECONDS)
        if stack.twin.exists():
            Twin(Layout(stack.twin)).down(Silent())
        shutil.rmtree(scratch, ignore_errors=True)


def result(stack: MovingStack, history: CapacityHistory, started_at: float) -> Result:
    """Return the figures of a run that has ended."""
    report, run = stack.query("report"), stack.read()
    machines = MachineLog(stack.twin / "machines.json").observed
    verification, exactly_once = verify(stack.run_folder)
    start_seconds = median(joins(run, machines) or [0.0])
    billed = report["money"]["machine_hours"] * HOUR_SECONDS
    billed_before = MACHINES * (started_at - run.starts[0].at)
    comparisons, outcome = compare(
        run, history, started_at, stack.speed, max(billed - billed_before, 1.0), start_seconds
    )
    moves = [
        move | {"training_in_the_old_zone": training_at(run, move["began"])}
        for move in report["moves"]
    ]
    return Result(
        verify_output=verification,
        exactly_once=exactly_once,
        moves=moves,
        compared=comparisons,
        simulated_moves=outcome.moves,
        start_seconds=start_seconds,
        load=os.getloadavg()[2],
    )


def keep(stack: MovingStack, folder: Path) -> None:
    """Copy the run and its page into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    page = str((folder / "report.html").absolute())
    stack.run("report", "--stack", STACK, "--twin", "--html", page)
    for name in ("events.jsonl", "machines.json"):
        if (stack.twin / name).exists():
            shutil.copy(stack.twin / name, folder / name)
    if stack.moves.exists():
        shutil.copy(stack.moves, folder / KEPT_MOVES)
    shutil.copytree(stack.run_folder / "journal", folder / "journal", dirs_exist_ok=True)


def parse() -> argparse.Namespace:
    """Parse the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=SEED, help="seed of the history")
    parser.add_argument(
        "--speed", type=float, default=SPEED, help="seconds of the history in a real second"
    )
    parser.add_argument("--keep", type=Path, help="copy the run and its page into this folder")
    parser.add_argument("--json", action="store_true", help="print JSON for programs")
    return parser.parse_args()


def show(result: Result, *, as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        print(json.dumps(asdict(result), indent=1))
        return
    print(result.verify_output)
    for move in result.moves:
        print(
            f"{move['origin']} -> {move['to']}: {_cost(move)}, "
            f"{move['training_in_the_old_zone']} trained at the decision: {move['reason']}"
        )
    print(
        f"moves of the simulator: {result.simulated_moves}; a machine starts in {result.start_seconds:.1f} s"
    )
    for figure in result.compared:
        print(
            f"{figure.name}: measured {figure.measured:.3f}, simulated {figure.simulated:.3f}, ratio {figure.ratio:.3f}"
        )
    print(f"load of the last 15 minutes: {result.load:.1f}")


def _cost(move: dict[str, Any]) -> str:
    """Return the cost of a move to the group as text; dots while it is in progress."""
    if move["seconds"] is None:
        return "..."
    return f"{move['seconds']:.2f} s, {move['steps_lost']} steps repeated"


if __name__ == "__main__":
    main()
