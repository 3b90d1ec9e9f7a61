"""The benchmark of moves between zones, without its cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.moves import (
    HOURS,
    MACHINES,
    SEED,
    SPEED,
    ZONES,
    joins,
    market,
    predict,
    training_at,
)
from everstep.catalog.units import HOUR_SECONDS
from everstep.cli.report.machines import MachineKind, ReportedMachine
from tests.e2e.paced import PACE
from tests.everstep.cli.recorded_run import two_zones

KIND = MachineKind("g5.xlarge", "a", on_demand=False)


def test_the_history_has_three_zones_six_hours_and_at_least_two_moves() -> None:
    history = market(SEED)
    step = 0.8

    outcome = predict(
        history, speed=SPEED, work=500 * step * MACHINES, step_seconds=step, start_seconds=20.0
    )

    assert history.zones == ZONES
    assert history.hours == HOURS
    assert outcome.complete
    assert outcome.moves >= 2
    assert history.machines[0][0] == MACHINES, "the group is complete in the first zone"


def test_a_simulated_run_takes_at_least_as_long_as_with_all_machines() -> None:
    outcome = predict(market(SEED), speed=SPEED, work=300.0, step_seconds=0.5, start_seconds=10.0)

    assert 300.0 / MACHINES + 10.0 <= outcome.seconds <= HOURS * HOUR_SECONDS / SPEED


def test_the_join_of_a_move_is_the_first_step_of_a_group_with_a_machine_in_the_new_zone() -> None:
    recorded = two_zones()
    machines = {
        f"gpu-{n}": ReportedMachine(KIND, "zone-a" if n < 2 else "zone-b") for n in range(4)
    }

    (seconds,) = joins(recorded.run(), machines)

    assert seconds == pytest.approx(30.0 + 2.0 + 0.5)


def test_the_size_of_the_group_at_a_decision_equals_the_size_in_the_steps_around_it() -> None:
    recorded = two_zones()
    run = recorded.run()
    (move,) = recorded.moves

    assert training_at(run, move.began) == 2
    assert training_at(run, run.starts[0].at) == 0
    assert training_at(run, run.pauses[0][0].at + 0.1) == 0, "the group forms again"


def test_a_paced_worker_takes_the_configured_time_for_each_sample(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PACE)
    package = tmp_path / "everstep" / "elastic" / "training"
    package.mkdir(parents=True)
    for folder in (package, *package.parents[:2]):
        (folder / "__init__.py").touch()  # found before the installed package
    (package / "batch.py").write_text(
        "class Batch:\n"
        "    is_warm_up = False\n"
        "    def _begin(self, microbatch): pass\n"
        "    def _end(self, microbatch): pass\n"
    )
    program = (
        "import time; from types import SimpleNamespace\n"
        "from everstep.elastic.training.batch import Batch\n"
        "start, batch, share = time.monotonic(), Batch(), SimpleNamespace(ids=range(5))\n"
        "batch._begin(share); batch._end(share)\n"
        "print(time.monotonic() - start >= 0.1)\n"
    )

    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(tmp_path), "PACE_SECONDS": "0.02"}, cwd=tmp_path,
    )  # fmt: skip

    assert result.stdout.strip() == "True", result.stderr
