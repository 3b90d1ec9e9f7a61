"""Delay every fsync and fdatasync of a program and its children: `slow_sync.py FILE COMMAND...`.

FILE contains the delay in milliseconds; it may change at any moment, and a call that waits returns as soon as the new
delay is over. This makes a disk slow, or hang, for one program but not for its machine. The kernel holds the
calling thread (seccomp's user notification) and wakes it for SIGKILL only, as in a call to a hung mount.

The command keeps this process's ID. A second process responds to the kernel, and ends with the command.
"""

import array
import contextlib
import ctypes
import fcntl
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.02
CALLS = {"x86_64": (0xC000003E, 317, (74, 75)), "aarch64": (0xC00000B7, 277, (82, 83))}
"""By architecture: its identifier in the filter, and the numbers of seccomp(2), fsync(2) and fdatasync(2)."""

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38  # linux/prctl.h
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # linux/filter.h
_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 1 << 3, 1 << 5  # from here on: linux/seccomp.h
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION_BYTES, _CONTINUE = 80, 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def command(delay_file: Path) -> tuple[str, ...]:
    """Return the command prefix that runs another command with a slow disk."""
    return (sys.executable, "-I", "-S", __file__, str(delay_file))


def main() -> None:
    """Install the filter, start the second process, and become the command."""
    delay_file, command = Path(sys.argv[1]), sys.argv[2:]
    parent_end, child_end = socket.socketpair()
    parent = os.getpid()
    if os.fork() == 0:
        parent_end.close()
        _respond(child_end, delay_file, parent)
        os._exit(0)
    child_end.close()
    listener = _install_filter()
    socket.send_fds(parent_end, [b"l"], [listener])
    os.close(listener)
    parent_end.close()
    os.execvp(command[0], command)


def _install_filter() -> int:
    """Make the kernel report the calls of this process and its children; return the descriptor."""
    architecture, seccomp, (fsync, fdatasync) = CALLS[platform.machine()]
    instructions = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD, 0, 0, 4),  # load the architecture
            (_JUMP_IF_EQUAL, 0, 3, architecture),
            (_LOAD, 0, 0, 0),  # load the number of the system call
            (_JUMP_IF_EQUAL, 2, 0, fsync),
            (_JUMP_IF_EQUAL, 1, 0, fdatasync),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, _NOTIFY),
        )
    )
    memory = ctypes.create_string_buffer(instructions, len(instructions))
    program = _Program(len(instructions) // 8, ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    flags = _NEW_LISTENER | _WAIT_KILLABLE
    listener = int(libc.syscall(seccomp, _SET_MODE_FILTER, flags, ctypes.byref(program)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "this kernel does not report system calls")
    return listener


def _respond(connection: socket.socket, delay_file: Path, parent: int) -> None:
    """Continue each call after its delay, until the command has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    _, (listener, *_), _, _ = socket.recv_fds(connection, 1, 1)
    connection.close()
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    delayed_calls: list[tuple[float, int]] = []  # time and notification ID of each delayed call
    while True:
        for _, events in poller.poll(POLL_SECONDS * 1000 if delayed_calls else None):
            if events & select.POLLHUP:
                return
            if notification_id := _receive(listener):
                delayed_calls.append((time.monotonic(), notification_id))
        cutoff = time.monotonic() - _delay_seconds(delay_file)
        for called_at, notification_id in list(delayed_calls):
            if called_at <= cutoff:
                delayed_calls.remove((called_at, notification_id))
                with contextlib.suppress(OSError):  # its process was killed meanwhile
                    response = struct.pack("=QqiI", notification_id, 0, 0, _CONTINUE)
                    fcntl.ioctl(listener, _SEND, response)


def _receive(listener: int) -> int:
    """Return the notification ID of a call that waits; 0 if its process was killed meanwhile."""
    notification = array.array("B", bytes(_NOTIFICATION_BYTES))
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _RECEIVE, notification, True)
        return int(struct.unpack_from("=Q", notification)[0])
    return 0


def _delay_seconds(path: Path) -> float:
    try:
        return float(path.read_text() or 0) / 1000
    except (OSError, ValueError):
        return 0.0


if __name__ == "__main__":
    main()
