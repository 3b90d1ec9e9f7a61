"""Files that another process may read at any moment: whole or not there."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

PRIVATE = 0o600
PUBLIC = 0o644


def write(path: Path, content: str | bytes, mode: int = PUBLIC) -> None:
    """Write a file so that a reader, or a crash, finds the old content or the new, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    aside = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: object, mode: int = PUBLIC) -> None:
    """Write a value as JSON, whole or not at all."""
    write(path, json.dumps(value, indent=1, sort_keys=True) + "\n", mode)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return what `write_json` wrote; None where there is no file, or one that is not ours to understand."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
