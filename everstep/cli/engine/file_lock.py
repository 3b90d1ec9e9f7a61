"""A lock for one process at a time, which a killed process releases.

It is a kernel lock on an open file, not the existence of the file, so it ends with the process that holds it.
The file has the error message for the next process.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from everstep.errors import EverstepError


@contextmanager
def exclusive_lock(path: Path, command: str, fix: str) -> Iterator[None]:
    """Acquire the lock at `path` and release it at the end of the block.

    Args:
        path: lock file.
        command: command of this process, for the error of another one.
        fix: advice for the user while another process holds the lock.

    Raises:
        EverstepError: another process holds the lock; the error has its command, its process ID
            and the time at which it began.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise EverstepError(
                file.read().strip() or "another command of this stack is already running", fix
            ) from None
        file.truncate(0)
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        file.write(f"{command} is already running: process {os.getpid()} since {now}\n")
        file.flush()
        yield
