"""The shell of a user: Ctrl-C ends a command even if the tests run in the background."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides.shell import Shell


@pytest.fixture
def background() -> Iterator[None]:
    """Ignore SIGINT, like a command that a shell starts in the background."""
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.mark.usefixtures("background")
def test_ctrl_c_ends_a_command_of_tests_that_run_in_the_background(tmp_path: Path) -> None:
    shell = Shell(tmp_path, dict(os.environ), tmp_path / "shell.log")

    with shell.start("echo started; sleep 600") as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    assert process.returncode == -signal.SIGINT
