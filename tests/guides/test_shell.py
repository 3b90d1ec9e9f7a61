"""The shell of a user: Ctrl-C ends a command wherever the tests run."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides.shell import Shell


@pytest.fixture
def in_background() -> Iterator[None]:
    """Ignore SIGINT, as a shell makes the commands do that it starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("in_background")
def test_ctrl_c_ends_a_command_of_tests_that_run_in_the_background(tmp_path: Path) -> None:
    shell = Shell(tmp_path, dict(os.environ), tmp_path / "walk.log")

    with shell.start("echo started; sleep 600") as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=60)

    assert process.returncode
