"""Live mode with an etcd outage, several workers per node, and changing bounds."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.trainer.elastic.conftest import Start
from tests.trainer.elastic.nodes import Nodes, wait_until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

OUTAGE_SECONDS = 30


def workers_started(nodes: Nodes, name: str) -> int:
    return sum(entry["node"] == f"node-{name}" for entry in nodes.journal("start"))


def test_half_a_minute_without_etcd_costs_no_step_and_commits_succeed_afterwards(
    start: Start, etcd: tuple[str, "subprocess.Popen[bytes]"]
) -> None:
    nodes, server = start(), etcd[1]
    first = nodes.next_step(0, world_size=3, seconds=300)
    wait_until(lambda: nodes.journal("checkpoint"), 240, f"something is committed\n{nodes.logs()}")

    server.send_signal(signal.SIGSTOP)
    outage_start = time.time()
    time.sleep(OUTAGE_SECONDS)
    outage_end = time.time()
    server.send_signal(signal.SIGCONT)
    wait_until(
        lambda: [entry for entry in nodes.journal("checkpoint") if entry["at"] > outage_end],
        240,
        f"commits continue\n{nodes.logs()}",
    )
    nodes.next_step(outage_end + 10, world_size=3)

    # The first group may have been smaller, on a machine where the start of a node takes long.
    steps = [entry for entry in nodes.journal("step") if entry["at"] >= first["at"]]
    during = [entry for entry in steps if outage_start + 3 < entry["at"] < outage_end]
    assert len({entry["step"] for entry in during}) > 5, "training continues"
    assert {entry["generation"] for entry in steps} == {first["generation"]}, nodes.logs()
    recorded = [(entry["file"], entry["step"]) for entry in steps]
    assert len(recorded) == len(set(recorded)), "no step is repeated"
    assert [workers_started(nodes, name) for name in ("w0", "w1", "w2")] == [1, 1, 1]


def test_a_killed_worker_is_replaced_and_the_other_worker_of_the_node_continues(
    start: Start,
) -> None:
    nodes = start(names=("w0", "w1"), workers=2)
    nodes.next_step(0, world_size=4, seconds=400)

    killed = time.time()
    os.kill(nodes.worker("w1"), signal.SIGKILL)
    after = nodes.next_step(killed, world_size=2)
    rejoined = nodes.next_step(after["at"], world_size=4, seconds=300)

    assert after["at"] - killed < 30
    assert rejoined["generation"] > after["generation"]
    assert workers_started(nodes, "w0") == 2, (
        "the workers of the other node have run without interruption"
    )
    assert workers_started(nodes, "w1") == 3
    steps = sorted({e["step"] for e in nodes.journal("step") if not e.get("again")})
    assert steps == list(range(1, steps[-1] + 1)), "no step may be missing"


def test_raised_bounds_admit_a_spare_during_training_without_restarts(
    start: Start, tmp_path: Path
) -> None:
    bounds = tmp_path / "nnodes"
    bounds.write_text("1:1")
    nodes = start(names=("w0",), bounds_file=bounds)
    nodes.next_step(0, world_size=1, seconds=300)
    nodes.start("w1")
    wait_until(lambda: nodes.members() == 2, 300, f"w1 is a warm spare\n{nodes.logs()}")
    spare = time.time() + 2
    nodes.next_step(spare, world_size=1)

    bounds.write_text("1:2")

    nodes.next_step(spare, world_size=2, seconds=200)
    assert [workers_started(nodes, name) for name in ("w0", "w1")] == [1, 1]
