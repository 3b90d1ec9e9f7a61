"""The few system calls that Python 3.11 does not offer: namespaces and mounts.

Programs such as `unshare` and `mount` could do the same, but a machine needs some thirty mounts before its
first program may run, and between them the order of namespaces, forks and mounts must be ours.
"""

import ctypes
import os
from enum import IntFlag
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MNT_DETACH = 2


class Namespace(IntFlag):
    """Kinds of namespace, with the kernel's numbers."""

    MOUNT = 0x00020000
    CGROUP = 0x02000000
    UTS = 0x04000000
    IPC = 0x08000000
    PID = 0x20000000
    NETWORK = 0x40000000


class Mount(IntFlag):
    """Flags of a mount, with the kernel's numbers."""

    NONE = 0
    READ_ONLY = 1
    NO_SUID = 2
    NO_DEVICES = 4
    NO_EXECUTION = 8
    REMOUNT = 32
    BIND = 4096
    RECURSIVE = 16384
    PRIVATE = 1 << 18
    SHARED = 1 << 20


def unshare(kinds: Namespace) -> None:
    """Leave these namespaces for new ones; a new PID namespace holds from the next fork on."""
    _check(_libc.unshare(int(kinds)), "unshare", kinds.name or str(int(kinds)))


def enter(namespace_file: Path, kind: Namespace) -> None:
    """Enter the namespace that a file of /proc/<pid>/ns stands for."""
    descriptor = os.open(namespace_file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, int(kind)), "setns", str(namespace_file))
    finally:
        os.close(descriptor)


def mount(
    source: str | Path, target: Path, kind: str = "", flags: Mount = Mount.NONE, options: str = ""
) -> None:
    """Mount `source`, of file system `kind`, at `target`."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(int(flags)),
        options.encode() or None,
    )
    _check(result, "mount", f"{source} at {target}")


def bind(source: Path, target: Path, *, read_only: bool = False, recursive: bool = False) -> None:
    """Make `source` visible at `target`; read-only holds for the top mount only."""
    mount(source, target, flags=Mount.BIND | (Mount.RECURSIVE if recursive else Mount.NONE))
    if read_only:
        mount("none", target, flags=Mount.REMOUNT | Mount.BIND | Mount.READ_ONLY)


def unmount(target: Path) -> None:
    """Detach the mount at `target` and all below it, now or when the last user is gone."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH), "umount", str(target))


def pivot_root(new_root: Path) -> None:
    """Make `new_root`, a mount of its own, the root of this mount namespace, and forget the old root."""
    os.chdir(new_root)
    number = _PIVOT_ROOT[os.uname().machine]
    # Both arguments the same folder: the old root lands on top of the new one and is detached from there.
    _check(_libc.syscall(number, b".", b"."), "pivot_root", str(new_root))
    unmount(Path())
    os.chdir("/")


def _check(result: int, call: str, about: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}", about)
