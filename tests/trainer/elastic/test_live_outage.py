"""Live mode with an etcd outage, several workers per node, and changing bounds on the number of nodes."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.journals import completed_steps
from tests.trainer.elastic.conftest import PACED, StartNodes, workers_started
from tests.waiting import wait_until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

OUTAGE_SECONDS = 30


def test_half_a_minute_without_etcd_costs_no_step_and_commits_succeed_afterwards(
    start_nodes: StartNodes, etcd: tuple[str, "subprocess.Popen[bytes]"]
) -> None:
    nodes, server = start_nodes(program=PACED), etcd[1]
    first_step = nodes.next_step(0, world_size=3, seconds=300)
    wait_until(
        lambda: nodes.journal("checkpoint"), "a checkpoint is committed", 240, details=nodes.logs
    )

    server.send_signal(signal.SIGSTOP)
    outage_start = time.time()
    time.sleep(OUTAGE_SECONDS)
    outage_end = time.time()
    server.send_signal(signal.SIGCONT)
    wait_until(
        lambda: [entry for entry in nodes.journal("checkpoint") if entry["at"] > outage_end],
        "commits continue",
        240,
        details=nodes.logs,
    )
    nodes.next_step(outage_end + 10, world_size=3)

    # The first group may have been smaller, on a machine where a node takes long to start.
    steps = [entry for entry in nodes.journal("step") if entry["at"] >= first_step["at"]]
    steps_in_outage = [entry for entry in steps if outage_start + 3 < entry["at"] < outage_end]
    assert len({entry["step"] for entry in steps_in_outage}) > 5, "training continues"
    assert {entry["generation"] for entry in steps} == {first_step["generation"]}, nodes.logs()
    worker_steps = [(entry["file"], entry["step"]) for entry in steps]
    assert len(worker_steps) == len(set(worker_steps)), "no step is repeated"
    assert [workers_started(nodes, name) for name in ("w0", "w1", "w2")] == [1, 1, 1]


def test_a_killed_worker_is_replaced_and_the_other_worker_of_the_node_continues(
    start_nodes: StartNodes,
) -> None:
    nodes = start_nodes(names=("w0", "w1"), workers=2, program=PACED)
    nodes.next_step(0, world_size=4, seconds=400)

    killed_at = time.time()
    os.kill(nodes.worker("w1"), signal.SIGKILL)
    step_after_kill = nodes.next_step(killed_at, world_size=2)
    step_after_return = nodes.next_step(step_after_kill["at"], world_size=4, seconds=300)

    assert step_after_return["generation"] > step_after_kill["generation"]
    assert workers_started(nodes, "w0") == 2, (
        "the workers of the other node have run without interruption"
    )
    assert workers_started(nodes, "w1") == 3
    steps = completed_steps(nodes.journal("step"))
    assert set(steps) == set(range(1, steps[-1] + 1)), "no step may be missing"


def test_raised_bounds_admit_a_spare_during_training_without_restarts(
    start_nodes: StartNodes, tmp_path: Path
) -> None:
    bounds = tmp_path / "nnodes"
    bounds.write_text("1:1")
    nodes = start_nodes(names=("w0",), bounds_file=bounds, program=PACED)
    nodes.next_step(0, world_size=1, seconds=300)
    nodes.start("w1")
    wait_until(lambda: nodes.members() == 2, "w1 is a warm spare", 300, details=nodes.logs)
    spare_since = time.time() + 2
    nodes.next_step(spare_since, world_size=1)

    bounds.write_text("1:2")

    nodes.next_step(spare_since, world_size=2, seconds=200)
    assert [workers_started(nodes, name) for name in ("w0", "w1")] == [1, 1]
