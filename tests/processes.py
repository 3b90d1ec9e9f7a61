"""Processes of this machine, as /proc shows them, and free ports."""

import contextlib
import os
import random
import signal
import socket
from collections.abc import Callable
from pathlib import Path

PORTS = range(20_000, 30_000)
"""Ports for tests, below the kernel's range of ephemeral ports."""

_reservations: list[socket.socket] = []


def free_port() -> int:
    """Return a loopback TCP port that no other test gets until this process ends, even before it is bound."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return consecutive ports with the properties of `free_port`."""
    while True:
        first = random.SystemRandom().choice(PORTS[: 1 - count or None])
        ports = list(range(first, first + count))
        if all(_reserve(port) for port in ports):
            return ports


def _reserve(port: int) -> bool:
    """Reserve a port against other processes of the tests; return False if it is in use."""
    reservation = socket.socket(socket.AF_UNIX)
    try:
        # An abstract socket address, which is released when the process exits.
        reservation.bind(f"\0everstep-tests-port-{port}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        reservation.close()
        return False
    _reservations.append(reservation)
    return True


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


def all_processes() -> list[int]:
    """Return the IDs of all processes."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def processes_in_session(session: int) -> set[int]:
    """Return the IDs of a session's processes."""
    return {process for process in all_processes() if stat_fields(process)[3:4] == [str(session)]}


def processes_of(launcher: int) -> set[int]:
    """Return the IDs of the processes in a launcher's session, and of all their descendants.

    Launchers such as torchrun start each worker in its own session.
    """
    children: dict[int, list[int]] = {}
    for process in all_processes():
        if fields := stat_fields(process):
            children.setdefault(int(fields[1]), []).append(process)
    members = processes_in_session(launcher)
    pending = list(members)
    while pending:
        new_processes = set(children.get(pending.pop(), [])) - members
        members |= new_processes
        pending += new_processes
    return members


def descendants(process: int) -> list[int]:
    """Return the IDs of the processes that a process and its descendants have started, children before parents."""
    children = [
        int(child)
        for task in Path(f"/proc/{process}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [member for child in children for member in (*descendants(child), child)]


def pss_kibibytes(process: int) -> int:
    """Return the proportional set size (PSS) of a process, in KiB; 0 if it has ended."""
    with contextlib.suppress(OSError):
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return 0


def signal_all(processes: Callable[[], set[int]], number: signal.Signals) -> None:
    """Send a signal to processes, including processes that start meanwhile.

    Args:
        processes: returns the existing processes.
        number: number of the signal.
    """
    signaled_processes: set[int] = set()
    while new_processes := processes() - signaled_processes:
        for process in new_processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        signaled_processes |= new_processes
