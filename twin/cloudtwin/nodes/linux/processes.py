"""Processes that outlive the command that started them.

A process is identified by its id and its start time. The kernel reuses ids, so a process must never be killed by
its id alone.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cloudtwin import files

POLL_SECONDS = 0.02
ENDED_STATES = ("", "Z", "X")  # none, zombie, dead
# Environment of the twin's programs, to which `start` may add variables: no proxy, no credentials, and the sbin
# folders that not every user's PATH has.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/",
    "LANG": "C.UTF-8",
}


@dataclass(frozen=True)
class Process:
    """A process.

    Attributes:
        pid: its id.
        started: clock tick of its start; it distinguishes the process from a later process with the same id.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """Return the running process of this id, or None."""
        state, start_tick = _stat(pid)
        return None if state in ENDED_STATES else cls(pid, start_tick)

    @property
    def alive(self) -> bool:
        """True if it runs; a zombie does not."""
        state, start_tick = _stat(self.pid)
        return state not in ENDED_STATES and start_tick == self.started

    def kill(self) -> None:
        """Kill it, if it still runs."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait_gone(self, seconds: float) -> bool:
        """Wait until it has ended; return False after the timeout."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # only the parent can reap a child
        return wait_until(lambda: not self.alive, seconds)

    def save(self, path: Path) -> None:
        """Write it to a file."""
        files.write_json(path, asdict(self))


def load(path: Path) -> Process | None:
    """Return the process in a file, running or not, or None if the file has none.

    A damaged file counts as absent: the cgroups also list the processes. `up` ends the processes
    without a record, and `down` ends all.
    """
    record = files.read_json_if_valid(path)
    try:
        return Process(int(record["pid"]), int(record["started"])) if record else None
    except (KeyError, TypeError, ValueError):
        return None


def start(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None
) -> Process:
    """Start a program in its own session, its output appended to a log."""
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
            umask=0o022,  # the user's umask may deny pods access to files that they need
        )
    # The child has not been reaped, so it has an entry in /proc even if it has ended.
    _, start_tick = _stat(child.pid)
    # The child is meant to outlive this object: prevent Popen's warning about a running child.
    child.returncode = 0
    return Process(child.pid, start_tick)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until a condition is true; return False after the timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _stat(pid: int) -> tuple[str, int]:
    """Return the state and the start tick of a process; "" and -1 if it does not exist."""
    try:
        # A program's name may be any bytes, and the kernel may cut a character.
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "", -1
    # The second field is the program's name in parentheses, which may itself contain parentheses.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])
