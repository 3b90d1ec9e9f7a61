"""Processes of this machine, as /proc shows them, and free ports."""

import contextlib
import socket
from pathlib import Path


def free_port() -> int:
    """Return a TCP port of the loopback address without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def stat_fields(process: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; proc_pid_stat(5) numbers them from 3.

    Empty if the process has ended.
    """
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return []


def start_ticks(process: int) -> int:
    """Return the start time of a process in ticks since the boot; 0 if it has ended."""
    fields = stat_fields(process)
    return int(fields[19]) if fields else 0
