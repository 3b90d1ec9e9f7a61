"""A model in two shards on each of two nodes: training continues after the loss of one node, or of both."""

import contextlib
import re
import runpy
import signal
import sys
from pathlib import Path

import pytest
import torch

from everstep.elastic.launch.launcher import DONE, NOTICE
from tests.everstep.elastic.launch.launched import (
    REPOSITORY,
    WAIT_SECONDS,
    LauncherProcess,
    run_launcher,
)
from tests.trainer.elastic.nodes import running_etcd

LOSE_RESULT = Path(__file__).with_name("lose_result.py")
SCRIPTS = REPOSITORY / "examples" / "sharded"
EPOCHS, STEPS_PER_EPOCH = 40, 8

pytestmark = [pytest.mark.twin, pytest.mark.timeout(4 * WAIT_SECONDS)]


def arguments(script: str, folder: Path) -> list[str]:
    return [str(SCRIPTS / script), "--run", str(folder), "--epochs", str(EPOCHS)]


def steps(launcher: LauncherProcess) -> list[int]:
    """Return the steps that a node has printed; a killed node may not have printed its last step."""
    return [int(number) for number in re.findall(r"step (\d+):", launcher.log)]


def train_whole_model(
    script: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, torch.Tensor]:
    """Train the whole model in this process, and return its parameters."""
    for name in ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", arguments(script, folder))
    runpy.run_path(str(SCRIPTS / script), run_name="__main__")
    return dict(torch.load(folder / "part-0-of-1.pt"))


def merged_state(folder: Path) -> dict[str, torch.Tensor]:
    """Return the parameters of both shards, merged into the parameters of the whole model."""
    first, second = (torch.load(folder / f"part-{part}-of-2.pt") for part in range(2))
    return {
        name: torch.cat([first[name], second[name]], 1 if name.endswith("narrow") else 0)
        for name in first
    }


@pytest.mark.parametrize("script", ["train.py", "fsdp.py"])
def test_a_sharded_model_survives_the_loss_of_a_node(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the worst moment: only one worker of the other node learns that all have the sums of the step."""
    marks = tmp_path / "marks"
    for folder in (marks, tmp_path / "etcd"):
        folder.mkdir()
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(running_etcd(tmp_path / "etcd"))
        options = [
            *("--nproc-per-node", "2", "--nnodes", "2"),
            *("--rendezvous-endpoint", endpoint, "--run-id", "sharded"),
            *(str(LOSE_RESULT), str(marks), *arguments(script, tmp_path)),
        ]
        lost_node = stack.enter_context(run_launcher(tmp_path, *options, name="n0"))
        survivor = stack.enter_context(run_launcher(tmp_path, *options, name="n1"))
        lost_node.wait_until(lambda: len(list(marks.iterdir())) == 4, "a result is lost")
        lost_node.kill()
        survivor.wait_for("lost n0")
        returned_node = stack.enter_context(run_launcher(tmp_path, *options, name="n0"))

        assert survivor.wait() == DONE, survivor.log
        assert returned_node.wait() == DONE, returned_node.log
    assert steps(survivor) == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1)), (
        "the survivor continues: without checkpoints, a restart of both nodes would begin at step 1 again"
    )
    # The log of n0 has its steps before and after its loss.
    assert steps(returned_node) == sorted(steps(returned_node)), (
        "it continues at the survivor's step"
    )
    assert steps(returned_node)[-1] == EPOCHS * STEPS_PER_EPOCH, "it trains until the end"
    compare_with_whole_model(script, tmp_path, monkeypatch)


@pytest.mark.parametrize("script", ["train.py", "fsdp.py"])
def test_a_sharded_run_continues_from_its_checkpoint_after_the_loss_of_all_nodes(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etcd").mkdir()
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(running_etcd(tmp_path / "etcd"))
        options = [
            *("--nproc-per-node", "2", "--nnodes", "2"),
            *("--rendezvous-endpoint", endpoint, "--run-id", "sharded"),
            *arguments(script, tmp_path),
            *("--checkpoint-steps", "8"),
        ]
        nodes = [
            stack.enter_context(run_launcher(tmp_path, *options, name=n)) for n in ("n0", "n1")
        ]
        nodes[0].wait_until(lambda: committed_steps(tmp_path), "a checkpoint is committed")
        for node in nodes:
            node.kill()
        first_step = committed_steps(tmp_path)[-1] + 1
        assert first_step <= EPOCHS * STEPS_PER_EPOCH, (
            "the nodes are lost before the end of the run"
        )
        nodes = [
            stack.enter_context(run_launcher(tmp_path, *options, name=n)) for n in ("m0", "m1")
        ]
        for node in nodes:
            assert node.wait() == DONE, node.log
    for node in nodes:
        assert steps(node) == list(range(first_step, EPOCHS * STEPS_PER_EPOCH + 1))
    compare_with_whole_model(script, tmp_path, monkeypatch)


def test_a_drained_node_with_the_only_state_saves_all_shards(tmp_path: Path) -> None:
    """Fewer nodes than the minimum are left, so no group can take its state."""
    last_step = drain_last_node(tmp_path)
    assert committed_steps(tmp_path) == [last_step]
    [checkpoint] = tmp_path.glob("checkpoints/step-*")
    assert len(list(checkpoint.glob("*.safetensors"))) == 2


def drain_last_node(folder: Path) -> int:
    """Train on two nodes, kill the first one, and drain the other one; return its last step."""
    (folder / "etcd").mkdir()
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(running_etcd(folder / "etcd"))
        options = [
            *("--nproc-per-node", "2", "--nnodes", "2"),
            *("--rendezvous-endpoint", endpoint, "--run-id", "sharded"),
            *(str(SCRIPTS / "train.py"), "--run", str(folder), "--epochs", "1000000"),
            *("--checkpoint-steps", "1000000"),
        ]
        lost_node = stack.enter_context(run_launcher(folder, *options, name="n0"))
        drained_node = stack.enter_context(run_launcher(folder, *options, name="n1"))
        drained_node.wait_until(lambda: steps(drained_node), "the nodes train")
        lost_node.kill()
        drained_node.wait_for("lost n0")
        drained_node.process.send_signal(signal.SIGTERM)

        assert drained_node.wait() == NOTICE, drained_node.log
    return steps(drained_node)[-1]


def committed_steps(folder: Path) -> list[int]:
    """Return the steps of the checkpoints."""
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("checkpoints/step-*"))


def compare_with_whole_model(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the shards that the nodes have trained with the model that this process trains."""
    expected_state = train_whole_model(script, folder / "whole", monkeypatch)
    actual_state = merged_state(folder)
    assert expected_state.keys() == actual_state.keys()
    for name, expected in expected_state.items():
        assert torch.allclose(actual_state[name], expected, atol=1e-4), (
            f"{name} differs from the parameter of the whole model"
        )
