"""One at a time: a lock that a killed process cannot leave behind.

It is a lock of the kernel's on an open file, not the file's existence, so it ends with its
holder. The file tells the next one who holds it.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from everstep.errors import EverstepError


@contextmanager
def only_one(path: Path, what: str, remedy: str) -> Iterator[None]:
    """Hold the lock at `path` while the block runs.

    Raises:
        EverstepError: another process holds it; names that process and since when it has.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise EverstepError(
                f"{what} is already running: {file.read().strip()}", remedy
            ) from None
        file.truncate(0)
        now = datetime.now().astimezone().strftime("%H:%M:%S")
        file.write(f"process {os.getpid()} since {now}\n")
        file.flush()
        yield
