"""Worker processes without an agent, and with an agent that has ended."""

import subprocess
import sys
from pathlib import Path

import pytest

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.recovery.worker import SingleProcessGroup
from everstep.elastic.recovery.worker_process import RESTART, connect_to_agent

ROOT = Path(__file__).parents[4]
PROGRAM = """
from everstep.elastic.recovery.worker_process import connect_to_agent
connect_to_agent()
print("continued")
"""


def test_a_process_that_no_agent_started_trains_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)

    assert connect_to_agent() is None
    assert SingleProcessGroup().commit(0, 1), "there is no other process in the run"


def test_a_worker_ends_if_its_agent_has_ended(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={AGENT_VARIABLE: str(tmp_path / "gone"), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == RESTART
    assert "the node's agent is gone" in result.stderr
    assert "continued" not in result.stdout
