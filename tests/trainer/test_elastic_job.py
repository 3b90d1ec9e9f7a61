"""Three agents on this machine train one model while nodes go, vanish, freeze and come back.

What `restart` mode does then, and what does not depend on the mode.
"""

import json
import shutil
import signal
import time

import pytest

from everstep.elastic import checkpoint
from tests.trainer.nodes import NAMES

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]


def test_in_restart_mode_a_job_outlives_a_drain_a_loss_a_freeze_and_the_loss_of_all_and_finishes(
    start,
):
    nodes = start("--mode", "restart")
    nodes.next_step(0, world_size=3, seconds=240)

    drained = time.time()
    nodes.tell("w1", signal.SIGTERM)
    assert nodes.exit_code("w1", 30) == 143, nodes.logs()
    after_drain = nodes.next_step(drained, world_size=2)
    before_drain = max(e["step"] for e in nodes.journal("step") if e["world_size"] == 3)
    assert after_drain["step"] == before_drain + 1, "an announced departure costs no step"

    returned = time.time()
    nodes.start("w1")
    after_return = nodes.next_step(returned, world_size=3, seconds=240)
    before_return = max(e["step"] for e in nodes.journal("step") if e["at"] < after_return["at"])
    assert after_return["step"] == before_return + 1, "a join costs no step"

    vanished = time.time()
    nodes.signal_all("w0", signal.SIGKILL)
    after_loss = nodes.next_step(vanished, world_size=2)
    assert after_loss["generation"] > after_return["generation"]

    nodes.start("w0")
    nodes.next_step(time.time(), world_size=3, seconds=240)
    frozen = time.time()
    nodes.signal_all("w2", signal.SIGSTOP)
    nodes.next_step(frozen, world_size=2)
    nodes.signal_all("w2", signal.SIGCONT)
    nodes.next_step(time.time(), world_size=3, seconds=240)

    for name in NAMES:  # all at once: only what is on the disk is left
        nodes.signal_all(name, signal.SIGKILL)
    total = max(entry["step"] for entry in nodes.journal("step")) + 5
    for name in NAMES:
        nodes.start(name, "--max-steps", str(total))
    assert [nodes.exit_code(name, 300) for name in NAMES] == [0, 0, 0], nodes.logs()

    steps = [entry["step"] for entry in nodes.journal("step")]
    assert set(steps) == set(range(1, total + 1)), "no step may be missing"
    assert json.loads((nodes.run / "result.json").read_text())["steps"] == total
    newest = checkpoint.check(max((nodes.run / "checkpoints").iterdir()))
    assert newest.manifest.step == total
    for event, at in (("drain", drained), ("vanish", vanished), ("freeze", frozen)):
        print(f"{event}: survivors' next step after {nodes.next_step(at, 2)['at'] - at:.1f} s")


def test_one_node_alone_trains_and_a_rerun_ends_at_once(start):
    nodes = start("--global-batch", "16", "--max-steps", "3", names=("w0",))
    assert nodes.exit_code("w0", 240) == 0, nodes.logs()
    starts = len(nodes.journal("start"))

    nodes.start("w1")

    assert nodes.exit_code("w1", 20) == 0, "a late joiner must not spoil a finished job"
    assert len(nodes.journal("start")) == starts

    nodes.start("w1", "--max-steps", "4")
    assert nodes.exit_code("w1", 240) == 0, nodes.logs()
    assert json.loads((nodes.run / "result.json").read_text())["steps"] == 4
    assert (nodes.run / "previous-1" / "result.json").exists(), "the earlier run is kept"


def test_a_damaged_checkpoint_is_skipped_and_another_model_s_is_refused(start):
    nodes = start("--global-batch", "16", "--max-steps", "6", names=("w0",))
    assert nodes.exit_code("w0", 240) == 0, nodes.logs()
    (nodes.run / "result.json").unlink()
    good = max((nodes.run / "checkpoints").iterdir())
    torn = good.with_name("step-00000099")
    shutil.copytree(good, torn)
    (torn / checkpoint.STATE_FILE).write_bytes(b"torn")

    nodes.start("w0")
    assert nodes.exit_code("w0", 240) == 0, nodes.logs()
    assert nodes.journal("skip_checkpoint")[-1]["path"].endswith(torn.name)
    assert nodes.journal("restore")[-1]["step"] == 6

    (nodes.run / "result.json").unlink()
    nodes.start("w0", "--model", "resnet34")
    assert nodes.exit_code("w0", 240) == 1
    assert "model is 'resnet18' there and 'resnet34' here" in nodes.logs()


def test_a_loss_that_is_not_a_number_ends_the_job_and_names_the_step(start):
    nodes = start(
        "--global-batch", "16", "--max-steps", "60", "--learning-rate", "1e30", names=("w0",)
    )

    assert nodes.exit_code("w0", 240) == 1
    assert "training has diverged" in nodes.logs()
