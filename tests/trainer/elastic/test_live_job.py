"""Local agents train one model while workers crash, leave and return."""

import json
import os
import signal
import time

import pytest

from everstep.elastic.checkpoint import files as checkpoint
from tests.journals import completed_steps
from tests.trainer.elastic.conftest import StartNodes, workers_started
from tests.trainer.elastic.nodes import NAMES
from tests.trainer.verification import run_verify

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]


@pytest.mark.parametrize("overlap", ["off", "on"])
def test_training_continues_after_a_crash_a_drain_a_return_and_a_freeze(
    start_nodes: StartNodes, overlap: str
) -> None:
    nodes = start_nodes("--overlap", overlap)
    nodes.next_step(0, world_size=3, seconds=240)

    killed_at = time.time()
    os.kill(nodes.worker("w0"), signal.SIGKILL)  # it may be rank 0, to which the same rules apply
    nodes.next_step(killed_at, world_size=2)
    nodes.next_step(time.time(), world_size=3, seconds=240)

    drained_at = time.time()
    nodes.signal_agent("w1", signal.SIGTERM)
    assert nodes.exit_code("w1", 240) == 143, nodes.logs()
    step_after_drain = nodes.next_step(drained_at, world_size=2)
    assert step_after_drain["step"] == nodes.last_step_before(step_after_drain) + 1, (
        "an announced departure costs no step"
    )

    nodes.start("w1")
    nodes.next_step(time.time(), world_size=3, seconds=240)
    frozen_at = time.time()
    nodes.signal_all("w1", signal.SIGSTOP)
    nodes.next_step(frozen_at, world_size=2)
    nodes.signal_all("w1", signal.SIGCONT)
    nodes.next_step(time.time(), world_size=3, seconds=240)
    assert workers_started(nodes, "w2") == 1, "the worker of w2 has run without interruption"
    assert workers_started(nodes, "w1") == 2, "a frozen worker continues when it is thawed"

    for name in NAMES:  # without a node, only the checkpoints remain
        nodes.signal_all(name, signal.SIGKILL)
    total = max(completed_steps(nodes.journal("step"))) + 5
    for name in NAMES:
        nodes.start(name, "--max-steps", str(total))
    assert [nodes.exit_code(name, 300) for name in NAMES] == [0, 0, 0], nodes.logs()

    assert set(completed_steps(nodes.journal("step"))) == set(range(1, total + 1)), (
        "no step may be missing"
    )
    assert json.loads((nodes.run / "result.json").read_text())["steps"] == total
    newest_checkpoint = checkpoint.check(max((nodes.run / "checkpoints").iterdir()))
    assert newest_checkpoint.manifest.step == total
    verification = run_verify(nodes.run)
    assert "every sample exactly once" in verification.stdout, verification
    lost_peer_entries = nodes.journal("lost")
    assert any(entry["kept"] for entry in lost_peer_entries), (
        "survivors keep their results of the step in flight"
    )


def test_in_exact_mode_a_disturbed_run_is_bitwise_equal_to_an_undisturbed_one(
    start_nodes: StartNodes,
) -> None:
    options = ("--mode", "exact", "--global-batch", "40", "--shard-size", "8", "--max-steps", "14")
    undisturbed_nodes = start_nodes(*options, names=("w0",), job="alone")
    assert undisturbed_nodes.exit_code("w0", 300) == 0, undisturbed_nodes.logs()

    disturbed_nodes = start_nodes(*options, job="disturbed")
    first_step = disturbed_nodes.next_step(0, world_size=3, seconds=240)
    os.kill(disturbed_nodes.worker("w1"), signal.SIGKILL)
    disturbed_nodes.next_step(first_step["at"], world_size=2)
    assert [disturbed_nodes.exit_code(name, 300) for name in NAMES] == [0, 0, 0], (
        disturbed_nodes.logs()
    )

    sizes = {entry["world_size"] for entry in disturbed_nodes.journal("step")}
    assert sizes >= {2, 3}
    results = [
        json.loads((n.run / "result.json").read_text())
        for n in (undisturbed_nodes, disturbed_nodes)
    ]
    assert results[0]["sha256"] == results[1]["sha256"]


def test_a_stopped_worker_is_replaced_and_a_drained_job_saves_its_last_step(
    start_nodes: StartNodes,
) -> None:
    nodes = start_nodes(names=("w0", "w1"))
    step = first_step = nodes.next_step(0, world_size=2, seconds=240)
    # In the first steps, workers wait longer than usual.
    while step["step"] < first_step["step"] + 30:
        step = nodes.next_step(step["at"], world_size=2)

    stopped_at = time.time()
    os.kill(nodes.worker("w1"), signal.SIGSTOP)

    nodes.next_step(stopped_at + 1, world_size=1)
    nodes.next_step(time.time(), world_size=2, seconds=240)
    assert workers_started(nodes, "w1") == 2
    stall = next(entry for entry in nodes.journal("stall") if entry["at"] > stopped_at)
    assert stall["nodes"] == ["node-w1"], "the stalled node is named before its worker is killed"
    ends = [e for e in nodes.journal("stall_over") if e["began_at"] == stall["began_at"]]
    assert [(end["nodes"], end["lost"]) for end in ends] == [(["node-w1"], True)]
    assert "s for node node-w1 (rank" in nodes.logs()

    for name in ("w0", "w1"):
        nodes.signal_agent(name, signal.SIGTERM)
        time.sleep(0.15)  # w1 is drained while w0 departs, so that no node stays
    assert [nodes.exit_code(name, 240) for name in ("w0", "w1")] == [143, 143], nodes.logs()
    saved_step = max(entry["step"] for entry in nodes.journal("checkpoint"))
    assert saved_step == max(completed_steps(nodes.journal("step"))), (
        "if no node stays, the last one to leave saves a checkpoint"
    )
