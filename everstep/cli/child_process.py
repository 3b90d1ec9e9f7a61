"""Run a program so that it and its child processes end with this command, even after Ctrl-C, SIGTERM and SIGHUP."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

GRACE_SECONDS = 35.0
"""Time between SIGTERM and SIGKILL: a launcher ends its workers, which have their own sessions, within 25 s."""


@contextmanager
def run_in_session(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a program in its own session; at the end of the block, end all processes of its process group.

    Args:
        command: program and arguments.
        log: file for its output.
        environment: variables in addition to this process's.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*signal_with_parent("TERM"), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,  # Ctrl-C reaches only this process, which then ends the others
        )
    try:
        yield process
    finally:
        _end(process)


def signal_with_parent(name: str) -> list[str]:
    """Return a command prefix that sends a signal to a process when its parent is killed; needs util-linux."""
    return ["setpriv", "--pdeathsig", name, "--"] if shutil.which("setpriv") else []


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
    finally:  # also after another Ctrl-C
        with suppress(ProcessLookupError):  # processes that outlived the first one
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
