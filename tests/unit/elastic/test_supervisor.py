"""Real processes: a supervisor, its worker, and an agent's end of the line held by the test."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from everstep.elastic import channel
from everstep.elastic.worker import FAILED, RESTART

PROGRAM = """
import os, sys, time
from pathlib import Path
from everstep.elastic import supervisor
supervisor.PAUSE_SECONDS = 0.01
def work():
    with open("started", "a") as file:
        file.write(f"{os.getpid()}\\n")
    life = len(Path("started").read_text().split())
    WORK
supervisor.supervise(work)
print("done", os.getpid(), flush=True)
"""


@pytest.fixture
def agent(tmp_path, monkeypatch):
    """Lets two crashes pass; whose they were."""
    asked: list[int] = []

    def hear(pid: int, message: channel.Message) -> channel.Message | None:
        asked.append(message["crashed"])
        return {"again": len(asked) < 3}

    exchange = channel.Exchange(tmp_path / "agent.sock", hear)
    exchange.start()
    monkeypatch.setenv(channel.SOCKET_VARIABLE, str(tmp_path / "agent.sock"))
    yield asked
    exchange.close()


def run(folder: Path, work: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("WORK", work)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def started(folder: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(line) for line in (folder / "started").read_text().split()]
    return []


def test_work_is_done_once_in_a_process_of_its_own(tmp_path, agent):
    process = run(tmp_path, "pass")
    out, err = process.communicate(timeout=20)

    assert (process.returncode, out) == (0, f"done {process.pid}\n"), err
    assert len(started(tmp_path)) == 1
    assert started(tmp_path) != [process.pid]
    assert agent == [], "nobody has to be asked"


@pytest.mark.parametrize("crash", ["os.kill(os.getpid(), 9)", "raise ValueError", "os._exit(3)"])
def test_a_worker_that_crashes_starts_again_if_its_agent_says_so(tmp_path, agent, crash):
    process = run(tmp_path, f"if life < 3: {crash}")
    _, err = process.communicate(timeout=20)

    assert process.returncode == 0, err
    assert agent == started(tmp_path)[:2]
    assert len(started(tmp_path)) == 3


def test_a_worker_that_may_not_start_again_ends_its_supervisor_as_it_ended(tmp_path, agent):
    process = run(tmp_path, "os.kill(os.getpid(), 9)")
    process.communicate(timeout=20)

    assert process.returncode == -signal.SIGKILL
    assert len(started(tmp_path)) == 3


@pytest.mark.parametrize("code", [RESTART, FAILED])
def test_what_only_torchrun_can_do_is_left_to_it(tmp_path, agent, code):
    process = run(tmp_path, f"sys.exit({code})")
    process.communicate(timeout=20)

    assert process.returncode == code
    assert agent == []


def test_without_an_agent_a_crash_is_the_end(tmp_path, monkeypatch):
    monkeypatch.delenv(channel.SOCKET_VARIABLE, raising=False)
    process = run(tmp_path, "os._exit(3)")
    process.communicate(timeout=20)

    assert process.returncode == 3


def test_a_supervisor_takes_its_worker_with_it(tmp_path, agent):
    process = run(tmp_path, "time.sleep(60)")
    deadline = time.monotonic() + 20
    while not started(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.kill()
    process.communicate(timeout=20)  # both hold the pipe: it ends when both are gone

    assert len(started(tmp_path)) == 1
