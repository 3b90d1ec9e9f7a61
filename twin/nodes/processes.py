"""Processes that outlive who started them.

A process is remembered by its id and the tick it started at. The kernel gives an id to a new process some
time after the old one ended, so an id alone must never be killed.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from twin.nodes import files

POLL_SECONDS = 0.02
ENDED = ("", "Z", "X")  # no process, a zombie, or about to be one
# All that the twin's programs see of who started them: no proxy, no credentials, and the folders of
# administration that not every user's PATH holds.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/",
    "LANG": "C.UTF-8",
}


@dataclass(frozen=True)
class Process:
    """A process, told from a later one of the same id by the clock tick it started at."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """Return the living process of this id, if there is one."""
        state, started = _stat(pid)
        return None if state in ENDED else cls(pid, started)

    @property
    def alive(self) -> bool:
        """Whether it still runs; one that ended and waits to be collected does not."""
        state, started = _stat(self.pid)
        return state not in ENDED and started == self.started

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait_gone(self, seconds: float) -> bool:
        """Wait until it is gone; False when it is still there after so long."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(
                self.pid, os.WNOHANG
            )  # where it is our own child, nobody else will collect it
        return wait_until(lambda: not self.alive, seconds)

    def save(self, path: Path) -> None:
        """Remember it in a file."""
        files.write_json(path, asdict(self))


def load(path: Path) -> Process | None:
    """Return the process that a file remembers, alive or not."""
    record = files.read_json(path)
    try:
        return Process(int(record["pid"]), int(record["started"])) if record else None
    except (KeyError, TypeError, ValueError):
        return None


def start(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
) -> Process:
    """Start a program in a session of its own, its output appended to a log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        child = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**ENVIRONMENT, **(environment or {})},
            start_new_session=True,
            cwd="/",
            umask=0o022,  # not the user's, which may hide from pods what they must read
        )
    # Not yet collected, so it has an entry even if it has ended.
    _, started = _stat(child.pid)
    # Popen would complain of a child still running when it is garbage-collected; that is the intent here.
    child.returncode = 0
    return Process(child.pid, started)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Look again and again until a condition holds; False when it does not after so long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _stat(pid: int) -> tuple[str, int]:
    """Return the state and the start tick of a process; no state and -1 when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", -1
    # The second field is the program's name in brackets and may hold anything, brackets too.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])
