"""Atomic file writes: readers find the old content or the new one, even after a crash."""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cloudtwin.errors import TwinError

PRIVATE = 0o600
PUBLIC = 0o644


class DamagedFileError(TwinError):
    """A file of a twin that exists, but whose content cannot be used.

    The twin writes its files atomically, so it has not caused the damage. Continuing without the content could lose
    machines and resources that still exist.
    """

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"{path} is damaged: {reason}.",
            "Restore or correct it. If it is removed, the twin continues without what it had recorded there; "
            "`down` removes the whole twin.",
        )


def write(path: Path, content: str | bytes, mode: int = PUBLIC) -> None:
    """Write a file atomically: write a temporary file, fsync it, rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: object, mode: int = PUBLIC) -> None:
    """Write a value as JSON, atomically."""
    write(path, json.dumps(value, indent=1, sort_keys=True) + "\n", mode)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if there is no such file.

    Raises:
        DamagedFileError: the file cannot be read, or its content is not a JSON object.
    """
    try:
        value = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DamagedFileError(path, str(error)) from None
    if not isinstance(value, dict):
        raise DamagedFileError(path, "its content is not a JSON object")
    return value


def read_json_if_valid(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None; for callers that do not depend on the content."""
    try:
        return read_json(path)
    except DamagedFileError:
        return None


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the JSON object in a file, {} if there is none; simultaneous changes are all kept.

    Args:
        path: the file. The lock is a file next to it, with the suffix `.lock`.
        change: function that changes the object in place.

    Raises:
        DamagedFileError: the file cannot be read, or its content is not a JSON object; it is not changed.
    """
    with locked(path.with_suffix(".lock")):
        document = read_json(path) or {}
        change(document)
        write_json(path, document)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file while the block runs; create it if necessary. Wait without a timeout for another holder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
