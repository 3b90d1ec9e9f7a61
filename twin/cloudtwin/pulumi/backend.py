"""The folder in which the engine keeps the state of stacks."""

from pathlib import Path


def backend_url(folder: Path) -> str:
    """Return the URL of a backend in a folder whose state stays readable after a SIGKILL at any moment.

    By default the file backend writes the attributes of each file into `FILE.attrs`, in place, before it
    renames the file itself. A process that is killed in between leaves `FILE.attrs` empty, and every later
    command fails with "failed to load checkpoint: EOF" (gocloud.dev v0.46.1, blob/fileblob/attrs.go, read
    2026-11-26). The engine does not use the attributes, so none are written.
    """
    return f"file://{folder}?metadata=skip"
