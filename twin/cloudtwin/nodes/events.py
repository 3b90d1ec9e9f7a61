"""The event log of a twin: one JSON line for every operation that changed a machine."""

import json
import os
import time
from pathlib import Path


def note(path: Path, kind: str, node: str, event_time: float | None = None) -> None:
    """Append an event; `event_time` is a time before its effects, from which recovery times are measured."""
    line = json.dumps({"at": event_time or time.time(), "kind": kind, "node": node}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())  # one write: lines of several commands do not mix
    finally:
        os.close(descriptor)
