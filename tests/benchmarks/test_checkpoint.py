"""The checkpoint benchmark on a full disk."""

from pathlib import Path
from typing import NoReturn

import pytest
import torch

from benchmarks import checkpoint
from everstep.elastic.checkpoint.folder_store import FolderStore


@pytest.mark.timeout(60)
def test_a_checkpoint_that_cannot_be_written_ends_the_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise OSError("no space left")

    monkeypatch.setattr(FolderStore, "write", refuse)
    monkeypatch.setattr(checkpoint, "resnet50_state", lambda: {"weight": torch.zeros(4)})
    monkeypatch.setattr(checkpoint, "work", lambda: None)
    monkeypatch.setattr(checkpoint, "PREPARATION_SECONDS", 0.0)

    with pytest.raises(SystemExit, match="step 0: no space left"):
        checkpoint.stall(tmp_path, rounds=1)
