"""Who may change a twin: one `up` or `down` at a time, and no verb beside them.

The lock is the kernel's, on a file: it ends with its holder, also with one that was killed. The file names the
holder for whoever is turned away.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from everstep.errors import EverstepError
from twin.nodes.processes import POLL_SECONDS, Process


@contextlib.contextmanager
def held(
    path: Path, subject: str, what: str, *, shared: bool = False, patience_seconds: float = 0.0
) -> Iterator[None]:
    """Hold the lock while the block runs.

    Args:
        path: the lock file; its folder is made. The block may remove both.
        subject: what is locked, for those who are turned away.
        what: what is being done to it, likewise.
        shared: verbs on machines do not exclude each other, only `up` and `down`.
        patience_seconds: how long to wait for somebody else who holds it; a person is told at once.

    Raises:
        EverstepError: somebody else holds it.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    descriptor = _open_locked(path, subject, kind, time.monotonic() + patience_seconds)
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {what}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _open_locked(path: Path, subject: str, kind: int, deadline: float) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # `down` took the folder away in between
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                if time.monotonic() >= deadline:
                    raise _busy(path, subject) from None
                time.sleep(POLL_SECONDS)
                continue
            # A file that `down` has removed meanwhile locks nobody out: take the one that is there now.
            if _same_file(descriptor, path):
                return descriptor
            os.close(descriptor)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _busy(path: Path, subject: str) -> EverstepError:
    pid, _, what = (path.read_text() if path.exists() else "").partition(" ")
    if (
        not pid.isdigit() or Process.of(int(pid)) is None
    ):  # of several verbs the last one's name stands there
        return EverstepError(f"The {subject} is being changed by somebody else.", "Try again.")
    return EverstepError(
        f"The {subject} is being changed: process {pid} is at `{what}`.",
        f"Wait until it is done, or end it with `kill {pid}`, and try again.",
    )
