"""The event log of a twin: one JSON line for every operation that changed a machine."""

import json
import os
import time
from pathlib import Path


def note(path: Path, kind: str, node: str, event_time: float | None = None) -> None:
    """Append an event.

    Args:
        path: the log.
        kind: the operation, such as `drain`.
        node: name of the machine.
        event_time: time before the effects of the operation, in seconds since the epoch; now by default. Recovery
            times are measured from it.
    """
    line = json.dumps({"at": event_time or time.time(), "kind": kind, "node": node}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())  # one write: lines of several commands do not mix
    finally:
        os.close(descriptor)
