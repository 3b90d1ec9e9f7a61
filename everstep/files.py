"""Paths as users write them, and files that other processes read: they appear complete or not at all."""

import os
from pathlib import Path

READABLE = 0o644
"""Mode of a file that other users may read, such as a page or a plot."""


def write_atomically(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write a file under a temporary name, sync it, and rename it; create its folder if needed.

    A failure leaves neither the temporary file nor a changed file.

    Args:
        path: file to write or replace.
        content: its content; text is written as UTF-8.
        mode: permissions of the file, before the umask.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def expand_user(path: str | Path) -> Path:
    """Return a path with the home folder in place of `~` or `~USER`.

    As in a shell, the path stays the same if there is no such user or home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)
