"""Locks on a twin and on its machines.

`up`, `add` and `down` hold the twin's lock exclusively; operations on machines share it. The kernel locks a file and
releases the lock when its holder ends, even if the holder is killed. The file names the holder for the error
message.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.nodes.linux.processes import POLL_SECONDS, Process
from cloudtwin.progress import Progress, Silent


@contextlib.contextmanager
def held(
    path: Path,
    subject: str,
    command: str,
    *,
    shared: bool = False,
    timeout_seconds: float = 0.0,
    shared_timeout_seconds: float = 0.0,
    progress: Progress | None = None,
) -> Iterator[None]:
    """Acquire the lock, and release it when the block ends.

    Args:
        path: the lock file; its folder is created if missing. The block may remove both.
        subject: name of the locked object, for the error message of other commands.
        command: the running command, for the same message.
        shared: allow other shared holders.
        timeout_seconds: time to wait for an exclusive holder; by default the error is raised immediately.
        shared_timeout_seconds: time to wait while all holders are shared, if it is longer than `timeout_seconds`.
        progress: receiver of the steps.

    Raises:
        TwinError: another process holds the lock.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    timeouts = {True: timeout_seconds, False: max(timeout_seconds, shared_timeout_seconds)}
    descriptor = _wait_for_lock(path, subject, kind, timeouts, progress or Silent())
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {command}".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _wait_for_lock(
    path: Path, subject: str, kind: int, timeouts: dict[bool, float], progress: Progress
) -> int:
    """Return the locked file's descriptor.

    Args:
        path: the lock file.
        subject: name of the locked object.
        kind: LOCK_EX or LOCK_SH.
        timeouts: seconds to wait while the holder is exclusive (True), and while all are shared (False).
        progress: receiver of the steps.
    """
    started_at = time.monotonic()

    def check() -> None:
        if time.monotonic() - started_at >= timeouts[_held_exclusively(path)]:
            raise _busy_error(path, subject)

    if (descriptor := _try_lock(path, kind)) is not None:
        return descriptor
    check()
    with progress.step(f"Waiting for another command on the {subject}"):
        while (descriptor := _try_lock(path, kind)) is None:
            check()
            time.sleep(POLL_SECONDS)
    return descriptor


def _try_lock(path: Path, kind: int) -> int | None:
    """Return the descriptor of the locked file; None if another process holds it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # `down` removed the folder in between
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return None
            # A file that `down` removed meanwhile locks nothing: open the current file.
            if _same_file(descriptor, path):
                return descriptor
            os.close(descriptor)


def _held_exclusively(path: Path) -> bool:
    """Return True if another process holds the lock exclusively."""
    descriptor = _try_lock(path, fcntl.LOCK_SH)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _busy_error(path: Path, subject: str) -> TwinError:
    pid, _, command = (path.read_text() if path.exists() else "").partition(" ")
    # With several shared holders, the file names the last holder, which may have ended.
    if not pid.isdigit() or Process.of(int(pid)) is None:
        return TwinError(f"The {subject} is being changed by another process.", "Try again.")
    return TwinError(
        f"The {subject} is being changed: process {pid} is running `{command}`.",
        f"Wait until it is done, or end it with `kill {pid}`, and try again.",
    )
