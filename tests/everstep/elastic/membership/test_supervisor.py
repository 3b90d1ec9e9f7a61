"""A supervisor and its worker as processes; the test acts as the agent."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.catalog.names import AGENT_VARIABLE
from everstep.elastic.recovery.worker_process import FAILED, RESTART
from everstep.elastic.transport import channel

WAIT_SECONDS = 120  # a busy machine takes long to start Python
REPLY_SECONDS = 0.3  # until the agent responds to the end of a worker
PROGRAM = """
import os, sys, time
from pathlib import Path
from everstep.elastic.membership import supervisor
supervisor.PAUSE_SECONDS = 0.01
def work():
    with open("started", "a") as file:
        file.write(f"{os.getpid()}\\n")
    attempt = len(Path("started").read_text().split())
    WORK
supervisor.supervise(work)
print("done", os.getpid(), flush=True)
"""


@pytest.fixture
def ended_pids() -> list[int]:
    """Return the process IDs of the workers that ended without an error, as reported to the agent."""
    return []


@pytest.fixture
def crashed_pids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended_pids: list[int]
) -> Iterator[list[int]]:
    """Run an agent that allows two restarts; yield the process IDs of the crashed workers."""
    pids: list[int] = []

    def receive(pid: int, message: channel.Message) -> channel.Message | None:
        if "ended" in message:
            time.sleep(REPLY_SECONDS)
            ended_pids.append(message["ended"])
            return {"noted": True}
        pids.append(message["crashed"])
        return {"again": len(pids) < 3}

    server = channel.AgentServer(tmp_path / "agent.sock", receive)
    server.start()
    monkeypatch.setenv(AGENT_VARIABLE, str(tmp_path / "agent.sock"))
    yield pids
    server.close()


def run(folder: Path, work: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.replace("WORK", work)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def started_pids(folder: Path) -> list[int]:
    with contextlib.suppress(FileNotFoundError):
        return [int(line) for line in (folder / "started").read_text().split()]
    return []


def test_the_work_runs_once_in_a_separate_process(
    tmp_path: Path, crashed_pids: list[int], ended_pids: list[int]
) -> None:
    process = run(tmp_path, "pass")
    output, errors = process.communicate(timeout=WAIT_SECONDS)

    assert (process.returncode, output) == (0, f"done {process.pid}\n"), errors
    assert len(started_pids(tmp_path)) == 1
    assert started_pids(tmp_path) != [process.pid]
    assert crashed_pids == []
    assert ended_pids == started_pids(tmp_path), (
        "torchrun would end the agent before it knows whether the run is complete"
    )


@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit(0)"])
def test_work_that_exits_without_an_error_is_done(
    tmp_path: Path, crashed_pids: list[int], end: str
) -> None:
    """Programs end with `sys.exit(main())`, whose exit code is None if `main` returns nothing."""
    process = run(tmp_path, end)
    output, errors = process.communicate(timeout=WAIT_SECONDS)

    assert (process.returncode, output) == (0, f"done {process.pid}\n"), errors
    assert len(started_pids(tmp_path)) == 1
    assert crashed_pids == []


def test_threads_and_exit_handlers_end_as_in_a_program_without_a_launcher(
    tmp_path: Path, crashed_pids: list[int]
) -> None:
    """Otherwise an upload in the background, or the last lines of a logger, would be lost with the process."""
    work = (
        "import atexit, threading; "
        "atexit.register(lambda: print('exit handler')); "
        "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()"
    )
    process = run(tmp_path, work)
    output, errors = process.communicate(timeout=WAIT_SECONDS)

    assert output == f"thread\nexit handler\ndone {process.pid}\n", errors
    assert crashed_pids == []


def test_a_crashed_worker_does_not_wait_for_its_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)
    process = run(
        tmp_path,
        "import threading; threading.Thread(target=time.sleep, args=(600,)).start(); raise ValueError",
    )
    process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 1, "its group would wait for it"


def test_work_that_exits_with_a_message_has_failed_and_the_message_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)
    process = run(tmp_path, "sys.exit('there is no data')")
    output, errors = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 1
    assert output == ""
    assert "there is no data\n" in errors


@pytest.mark.parametrize("crash", ["os.kill(os.getpid(), 9)", "raise ValueError", "os._exit(3)"])
def test_a_crashed_worker_is_restarted_if_its_agent_allows_it(
    tmp_path: Path, crashed_pids: list[int], crash: str
) -> None:
    process = run(tmp_path, f"if attempt < 3: {crash}")
    _, errors = process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 0, errors
    assert crashed_pids == started_pids(tmp_path)[:2]
    assert len(started_pids(tmp_path)) == 3


def test_the_supervisor_exits_like_a_worker_that_may_not_restart(
    tmp_path: Path, crashed_pids: list[int]
) -> None:
    process = run(tmp_path, "os.kill(os.getpid(), 9)")
    process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == -signal.SIGKILL
    assert len(started_pids(tmp_path)) == 3


@pytest.mark.parametrize("code", [RESTART, FAILED])
def test_an_exit_code_that_torchrun_must_handle_ends_the_supervisor(
    tmp_path: Path, crashed_pids: list[int], code: int
) -> None:
    process = run(tmp_path, f"sys.exit({code})")
    process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == code
    assert crashed_pids == []


def test_without_an_agent_a_crash_ends_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)
    process = run(tmp_path, "os._exit(3)")
    process.communicate(timeout=WAIT_SECONDS)

    assert process.returncode == 3


def test_a_worker_ends_with_its_supervisor(tmp_path: Path, crashed_pids: list[int]) -> None:
    process = run(tmp_path, "print(os.getpid(), flush=True); time.sleep(600)")
    assert process.stdout
    worker = int(process.stdout.readline())
    process.kill()
    process.communicate(timeout=WAIT_SECONDS)  # both hold the pipe open, and must have ended

    assert started_pids(tmp_path) == [worker]
