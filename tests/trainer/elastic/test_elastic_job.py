"""A job on one node: reruns and damaged checkpoints."""

import json
import shutil

import pytest

from everstep.elastic.checkpoint import files as checkpoint
from tests.trainer.elastic.conftest import StartNodes

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]


def test_a_single_node_trains_and_a_rerun_ends_immediately(start_nodes: StartNodes) -> None:
    nodes = start_nodes("--global-batch", "16", "--max-steps", "3", names=("w0",))
    assert nodes.exit_code("w0", 240) == 0, nodes.logs()
    starts = len(nodes.journal("start"))

    nodes.start("w1")

    assert nodes.exit_code("w1", 240) == 0, "a late joiner must not fail a finished job"
    assert len(nodes.journal("start")) == starts

    nodes.start("w1", "--max-steps", "4")
    assert nodes.exit_code("w1", 240) == 0, nodes.logs()
    assert json.loads((nodes.run / "result.json").read_text())["steps"] == 4
    assert (nodes.run / "previous-1" / "result.json").exists(), "the earlier run is kept"


def test_a_damaged_checkpoint_is_skipped_but_a_committed_one_stops_the_run_until_its_loss_is_accepted(
    start_nodes: StartNodes,
) -> None:
    options = ("--global-batch", "16", "--max-steps", "6", "--checkpoint-steps", "3")
    nodes = start_nodes(*options, names=("w0",))
    assert nodes.exit_code("w0", 240) == 0, nodes.logs()
    (nodes.run / "result.json").unlink()
    committed_checkpoint = max((nodes.run / "checkpoints").iterdir())
    damaged_checkpoint = committed_checkpoint.with_name("step-00000099")
    shutil.copytree(committed_checkpoint, damaged_checkpoint)
    (damaged_checkpoint / checkpoint.STATE_FILE).write_bytes(b"torn")

    nodes.start("w0")
    assert nodes.exit_code("w0", 240) == 0, nodes.logs()
    assert nodes.journal("skip_checkpoint")[-1]["path"].endswith(damaged_checkpoint.name)
    assert nodes.journal("restore")[-1]["step"] == 6

    (nodes.run / "result.json").unlink()
    nodes.start("w0", "--model", "resnet34")
    assert nodes.exit_code("w0", 240) == 1, "the checkpoint is of another model"
    assert "model is 'resnet18' there and 'resnet34' here" in nodes.logs()

    shutil.rmtree(damaged_checkpoint)
    (committed_checkpoint / checkpoint.STATE_FILE).write_bytes(b"torn")
    nodes.start("w0")
    assert nodes.exit_code("w0", 240) == 1, "an older state would be used without notice"
    assert "the committed checkpoint of step 6" in nodes.logs()
    assert "--accept-older-checkpoint=6" in nodes.logs()

    nodes.start("w0", "--accept-older-checkpoint", "6")
    assert nodes.exit_code("w0", 240) == 0, nodes.logs()
    (lost_checkpoint,) = nodes.journal("lost_checkpoint")
    assert lost_checkpoint["step"] == 6
    assert lost_checkpoint["restored"] < 6
    assert json.loads((nodes.run / "result.json").read_text())["steps"] == 6
