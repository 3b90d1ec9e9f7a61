"""An exclusive lock, released when its process ends, even by a kill.

It is a kernel lock on an open file, not the existence of the file. The file contains the error message for the next
process.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TextIO

from everstep.errors import EverstepError

MAX_ATTEMPTS = 10
"""Number of attempts to lock a file that other commands remove."""


@contextmanager
def exclusive_lock(path: Path, command: str, fix: str) -> Iterator[None]:
    """Acquire the lock at `path` and release it at the end of the block.

    Args:
        path: lock file.
        command: command of this process, for the error of another one.
        fix: advice for the user while another process holds the lock.

    Raises:
        EverstepError: another process holds the lock, or other commands keep removing its folder. In the first case,
            the error has the command, the process ID and the time at which it began.
    """
    with _locked_file(path, fix) as file:
        file.truncate(0)
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        file.write(f"{command} is already running: process {os.getpid()} since {now}\n")
        file.flush()
        yield


def _locked_file(path: Path, fix: str) -> TextIO:
    """Return the open and locked file; `down` may remove it, with its folder, before it is locked."""
    for _ in range(MAX_ATTEMPTS):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError), ExitStack() as on_failure:
            file = on_failure.enter_context(path.open("a+"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise EverstepError(
                    file.read().strip() or "another command of this stack is already running", fix
                ) from None
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                on_failure.pop_all()
                return file
    raise EverstepError(f"other commands of this stack keep removing {path.parent}", fix)
