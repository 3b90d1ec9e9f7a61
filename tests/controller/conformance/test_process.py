"""The maintained controller as a process: leader election and shutdown."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.controller.conformance.conftest import (
    Controller,
    ControllerProcess,
    start_controller,
)
from tests.waiting import wait_until

Start = Callable[[str], tuple["subprocess.Popen[bytes]", Path]]
WAIT_SECONDS = 500.0


@pytest.fixture
def start(controller: Controller, tmp_path: Path) -> Iterator[Start]:
    """Yield a function that starts another controller with leader election; all are stopped after the test."""
    if not isinstance(controller, ControllerProcess):
        pytest.skip("these tests start the maintained controller, and another one is under test")
    processes: list[subprocess.Popen[bytes]] = []

    def start_candidate(name: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = tmp_path / name
        process = start_controller(controller.kubeconfig, log, "--leader-elect")
        processes.append(process)
        return process, log

    yield start_candidate
    for process in processes:
        process.kill()
        process.wait(100)


def test_the_second_controller_takes_over_when_the_first_gets_sigterm(start: Start) -> None:
    first, log = start("first")
    wait_for_log(log, " is the leader")
    _, second_log = start("second")
    wait_for_log(second_log, "metrics and health")
    assert " is the leader" not in second_log.read_text()

    first.send_signal(signal.SIGTERM)

    assert first.wait(WAIT_SECONDS) == 0, "an orderly shutdown must exit with 0"
    wait_for_log(second_log, " is the leader")
    assert "Traceback" not in log.read_text() + second_log.read_text()


def wait_for_log(log: Path, text: str) -> None:
    """Wait until a text is in a log."""
    wait_until(
        lambda: text in log.read_text(),
        f"{text!r} is in the log",
        WAIT_SECONDS,
        details=log.read_text,
    )
