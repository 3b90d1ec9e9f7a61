"""This process as a worker of a run."""

import pytest
import torch

from everstep.elastic.accounting.time_account import TimeAccount
from everstep.elastic.recovery.worker import SingleProcessGroup
from everstep.elastic.training import worker
from everstep.errors import EverstepError


def test_a_process_of_a_launcher_may_have_only_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the second run and all later code would be skipped, with the exit code 0."""
    monkeypatch.setattr(worker, "_has_run", False)
    group = SingleProcessGroup()
    monkeypatch.setattr(worker, "attach_live", lambda *_: group)
    device = torch.device("cpu")

    assert worker.connect(device, TimeAccount()) is group
    with pytest.raises(EverstepError, match="this process has a run already"):
        worker.connect(device, TimeAccount())
