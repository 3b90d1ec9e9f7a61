"""The summary of a run that `down` removes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everstep.cli.engine.lifecycle import describe_run


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
