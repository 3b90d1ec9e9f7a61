"""A program and the processes that it starts end with the `with` block that started the program."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from everstep.cli.child_process import GRACE_SECONDS, run_in_session
from tests.processes import processes_in_session
from tests.waiting import wait_until

PROGRAM = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_DFL)
subprocess.Popen(["sleep", "1000"])
print("started", flush=True)
signal.pause()
"""


def interrupt(log: Path, sessions: list[int], program: str = PROGRAM) -> None:
    """Start the program, wait until it has a child, and interrupt this process."""
    with run_in_session([sys.executable, "-c", program], log) as process:
        wait_until(log.read_text, "the program has started its child", 60)
        sessions.append(process.pid)
        assert len(processes_in_session(process.pid)) == 2
        raise KeyboardInterrupt


def test_ctrl_c_ends_the_program_and_its_children(tmp_path: Path) -> None:
    sessions: list[int] = []

    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path / "log", sessions)

    wait_until(lambda: not processes_in_session(sessions[0]), "its child has ended", 60)


def test_ctrl_c_during_the_grace_period_ends_a_program_that_ignores_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = subprocess.Popen.wait

    def interrupted_wait(process: "subprocess.Popen[bytes]", timeout: float | None = None) -> int:
        if timeout == GRACE_SECONDS:
            raise KeyboardInterrupt
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted_wait)
    sessions: list[int] = []

    with pytest.raises(KeyboardInterrupt):
        interrupt(tmp_path / "log", sessions, PROGRAM.replace("SIG_DFL", "SIG_IGN"))

    wait_until(lambda: not processes_in_session(sessions[0]), "the program has ended", 60)


def test_the_output_of_a_program_is_in_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", "import os; print(os.environ['WORD'])"]

    with run_in_session(command, log, {"WORD": "hello"}) as process:
        assert process.wait(60) == 0

    assert log.read_text() == "hello\n"
    assert "WORD" not in os.environ
