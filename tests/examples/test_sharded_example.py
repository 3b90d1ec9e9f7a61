"""A model in two shards on each of two nodes: training continues after the loss of one node."""

import contextlib
import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

from everstep.elastic.launch.launcher import DONE
from tests.everstep.elastic.launch.launched import (
    REPOSITORY,
    WAIT_SECONDS,
    LauncherProcess,
    run_launcher,
)
from tests.trainer.elastic.nodes import running_etcd

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
    (tmp_path / "etcd").mkdir()
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(running_etcd(tmp_path / "etcd"))
        options = [
            *("--nproc-per-node", "2", "--nnodes", "2"),
            *("--rendezvous-endpoint", endpoint, "--run-id", "sharded"),
            *arguments(script, tmp_path),
        ]
        lost_node = stack.enter_context(run_launcher(tmp_path, *options, name="n0"))
        survivor = stack.enter_context(run_launcher(tmp_path, *options, name="n1"))
        lost_node.wait_until(lambda: steps(lost_node) or steps(survivor), "the nodes train")
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
    expected_state = train_whole_model(script, tmp_path / "whole", monkeypatch)
    actual_state = merged_state(tmp_path)
    assert expected_state.keys() == actual_state.keys()
    for name, expected in expected_state.items():
        assert torch.allclose(actual_state[name], expected, atol=1e-4), (
            f"{name} differs from the parameter of the whole model"
        )
