"""Atomic file writes: readers find the old content or the new one, even after a crash."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

PRIVATE = 0o600
PUBLIC = 0o644


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
    """Return the JSON object in a file, or None if the file cannot be read or holds no JSON object."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
