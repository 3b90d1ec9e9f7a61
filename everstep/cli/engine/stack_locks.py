"""The locks that Pulumi takes on a stack: their holders, and the release of locks left by killed processes."""

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path, PurePath

from everstep.cli.engine.driver import Engine
from everstep.cli.engine.workspace import Workspace
from everstep.errors import EverstepError

ENGINE = "pulumi"
"""Name of the program that takes locks."""


@dataclass(frozen=True)
class StackLock:
    """A lock on the stack, held by an engine that runs or was killed."""

    path: Path
    pid: int
    host: str

    @property
    def holder_is_alive(self) -> bool:
        """True if the process that took the lock may still run; always True for another host.

        After a restart of the machine, its process ID may belong to another program, which `kill` must not end.
        """
        if (self.host and self.host != socket.gethostname()) or not Path("/proc/self").exists():
            return True
        try:
            program = Path(f"/proc/{self.pid}/cmdline").read_bytes().partition(b"\0")[0]
        except OSError:
            return False
        return PurePath(os.fsdecode(program)).name == ENGINE  # empty for a process that has ended


def stack_locks(workspace: Workspace) -> list[StackLock]:
    """Return the locks on the stack."""
    folder = workspace.engine / "state" / ".pulumi" / "locks"
    return [
        lock
        for path in sorted(folder.rglob(f"{workspace.stack}/*.json"))
        if (lock := _read_lock(path)) is not None
    ]


def _read_lock(path: Path) -> StackLock | None:
    try:
        content = json.loads(path.read_text())
        return StackLock(path, int(content["pid"]), str(content.get("hostname", "")))
    except (OSError, ValueError, KeyError, TypeError):  # removed since, or not a lock of Pulumi
        return None


def release_stale_locks(engine: Engine) -> list[StackLock]:
    """Run `pulumi cancel` if the process that held the lock has ended; return the released locks.

    Raises:
        EverstepError: a process that may still run holds the lock.
    """
    locks = stack_locks(engine.workspace)
    for lock in locks:
        if lock.holder_is_alive:
            raise EverstepError(
                f"process {lock.pid} on {lock.host or 'this machine'} holds the lock of stack {engine.workspace.stack}",
                f"Wait until it is done, or stop it there: `kill -INT {lock.pid}`; then run this again.",
            )
    if locks:
        engine.run_on_state("cancel", "--yes", engine.workspace.stack)
    return locks
