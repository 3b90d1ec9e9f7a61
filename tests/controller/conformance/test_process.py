"""The maintained controller as a process: two of them, and one that is asked to end."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.controller.conformance.conftest import NAMESPACE, ROOT


@pytest.fixture
def start(controller, tmp_path):
    """Start a further controller that stands for election; all are ended after the test."""
    started: list[subprocess.Popen] = []

    def begin(name: str) -> tuple[subprocess.Popen, Path]:
        log = tmp_path / name
        flags = [
            "--namespace",
            NAMESPACE,
            "--kubeconfig",
            str(controller.kubeconfig),
            "--metrics-port",
            "0",
        ]
        with log.open("w") as stream:
            process = subprocess.Popen(
                [sys.executable, "-m", "controller", *flags, "--leader-elect"],
                cwd=ROOT,
                stdout=stream,
                stderr=stream,
            )
        started.append(process)
        return process, log

    yield begin
    for process in started:
        process.kill()
        process.wait(10)


def test_the_second_controller_takes_over_when_the_first_is_asked_to_end(start):
    first, log = start("first")
    _until(lambda: " leads" in log.read_text())
    _, second_log = start("second")
    _until(lambda: "metrics and health" in second_log.read_text())
    assert " leads" not in second_log.read_text()

    first.send_signal(signal.SIGTERM)

    assert first.wait(20) == 0, "an orderly end is no failure"
    _until(lambda: " leads" in second_log.read_text())
    assert "Traceback" not in log.read_text() + second_log.read_text()


def _until(true, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)
