"""A command that gets SIGTERM or SIGHUP cleans up before it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everstep.cli.termination import termination_as_exception
from tests.processes import processes_in_session
from tests.waiting import wait_until

PROGRAM = """
import sys
from pathlib import Path

from everstep.cli import app, main
from everstep.cli.child_process import run_in_session

def command(_):
    def run():
        child = [sys.executable, "-c", "print('started', flush=True); import signal; signal.pause()"]
        with run_in_session(child, Path("log")) as process:
            while not Path("log").read_text():
                pass
            Path("pid").write_text(str(process.pid))
            process.wait()
    return run

app.build_app = command
sys.argv = ["everstep", "scale"]
main.main()
"""


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    """Handle signals as in a terminal: a process in the background ignores some of them."""
    former = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    }
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


def start(folder: Path, *prefix: str) -> "subprocess.Popen[str]":
    """Start a command with a child process in a session of its own, and wait until the child runs."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", PROGRAM],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_until((folder / "pid").exists, "the child has started", 60)
    return process


def child_of(folder: Path) -> int:
    wait_until((folder / "pid").read_text, "the child's number is recorded", 60)
    return int((folder / "pid").read_text())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_command_ends_its_child_first(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path)

    process.send_signal(number)
    output, _ = process.communicate(timeout=60)

    assert (process.returncode, output) == (128 + number, "interrupted\n")
    assert not processes_in_session(child_of(tmp_path))


def test_the_child_of_a_killed_command_ends_too(tmp_path: Path) -> None:
    process = start(tmp_path)

    process.kill()
    process.communicate(timeout=60)

    session = child_of(tmp_path)
    wait_until(lambda: not processes_in_session(session), "the child has ended", 60)


def test_a_command_under_nohup_survives_a_closed_terminal(tmp_path: Path) -> None:
    process = start(tmp_path, "nohup")

    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.terminate()
    process.communicate(timeout=60)

    assert process.returncode == 128 + signal.SIGTERM


def end_by_sigterm(cleanup: Callable[[], object]) -> None:
    """Send SIGTERM to this process in the block of a command, which then cleans up."""
    with termination_as_exception():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            cleanup()


def test_code_for_ctrl_c_handles_a_termination_and_the_exit_code_is_of_the_signal() -> None:
    messages: list[str] = []

    with pytest.raises(SystemExit) as raised:
        end_by_sigterm(lambda: messages.append("the training continues"))

    assert messages == ["the training continues"]
    assert raised.value.code == 128 + signal.SIGTERM


def test_a_second_signal_does_not_interrupt_the_cleanup() -> None:
    steps: list[str] = []

    def delete_job() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        steps.append("the job is deleted")

    with pytest.raises(SystemExit) as raised:
        end_by_sigterm(delete_job)

    assert steps == ["the job is deleted"]
    assert raised.value.code == 128 + signal.SIGTERM


def test_ctrl_c_still_interrupts_the_cleanup() -> None:
    steps: list[str] = []

    def delete_job() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        steps.append("the job is deleted")

    with pytest.raises(SystemExit):
        end_by_sigterm(delete_job)

    assert steps == []


def test_the_handlers_are_removed_at_the_end_of_the_block() -> None:
    with termination_as_exception():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL

    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
