"""Worker processes without an agent, and with an agent that has ended."""

import subprocess
import sys
from pathlib import Path

import pytest

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.recovery.worker import SingleProcessGroup
from everstep.elastic.recovery.worker_process import FAILED, RESTART, connect_to_agent

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
    assert "start again" not in result.stderr, "no agent starts it"
    assert "continued" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ("", RESTART, "ends, to start again: no data"),
        (f", {FAILED}", FAILED, "ends: no data"),
        (", starts_again=False", RESTART, "ends: no data"),
    ],
)
def test_the_last_line_of_a_worker_says_whether_it_starts_again(
    arguments: str, code: int, line: str
) -> None:
    program = (
        "from everstep.elastic.recovery.worker_process import end_process; "
        f"end_process('no data'{arguments})"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert result.returncode == code
    assert result.stderr.endswith(f" {line}\n")
