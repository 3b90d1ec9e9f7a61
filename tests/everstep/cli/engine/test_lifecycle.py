"""What `down` removes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from everstep.cli.engine.context import StackContext
from everstep.cli.engine.driver import Engine, state_file
from everstep.cli.engine.lifecycle import describe_run, take_down
from everstep.cli.engine.stack_file import default_config
from everstep.cli.engine.target import Target
from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError
from everstep.progress import Silent


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return the folder of a run with two checkpoints of 1 MiB each."""
    for step in (1, 2):
        checkpoint = tmp_path / "run" / "checkpoints" / f"step-{step}"
        checkpoint.mkdir(parents=True)
        (checkpoint / "state").write_bytes(bytes(2**20))
    return tmp_path / "run"


def test_a_run_is_described_by_its_checkpoints_and_its_size(run: Path) -> None:
    assert describe_run(run) == "2 checkpoints and the journal, 2 MiB"
    assert describe_run(run / "none") is None


def remove_before_scan(checkpoint: Path) -> Callable[[Any], Any]:
    """Return a replacement for os.scandir that removes a checkpoint before it is listed."""
    scandir = os.scandir

    def scan(path: Any) -> Any:
        if Path(path) == checkpoint and checkpoint.exists():
            (checkpoint / "state").unlink()
            checkpoint.rmdir()
        return scandir(path)

    return scan


def test_a_checkpoint_that_a_worker_removes_meanwhile_is_not_an_error(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "scandir", remove_before_scan(run / "checkpoints" / "step-1"))

    assert describe_run(run) == "2 checkpoints and the journal, 1 MiB"


@pytest.mark.parametrize("state", ["", "{", "null", "[]"])
def test_a_twin_is_taken_down_even_if_pulumi_cannot_read_the_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    def fail(_engine: Engine) -> None:
        raise EverstepError("`pulumi stack rm` failed", "unexpected end of JSON input")

    monkeypatch.setattr(Engine, "remove_stack", fail)
    monkeypatch.setattr(StackContext, "connect", fail)
    monkeypatch.setattr(
        StackContext,
        "engine",
        lambda context, _progress: Engine(context.workspace, Path("pulumi"), {}),
    )
    twin = Mock()
    monkeypatch.setattr(StackContext, "twin", lambda _context: twin)
    workspace = Workspace(tmp_path, "local", "default", tmp_path / "state")
    context = StackContext(workspace, default_config(workspace), Target.TWIN)
    path = state_file(workspace)
    path.parent.mkdir(parents=True)
    path.write_text(state)

    take_down(context, Silent())

    twin.down.assert_called_once()
