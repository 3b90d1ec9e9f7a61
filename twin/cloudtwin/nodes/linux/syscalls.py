"""System calls that Python 3.11 lacks: namespaces and mounts.

Programs such as `unshare` and `mount` could do the same, but a machine needs thirty mounts before its first
program can run, in an exact order with namespaces and forks. The functions raise an OSError that names the call.
"""

import ctypes
import os
import struct
from enum import IntFlag
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MNT_DETACH = 2
_MOUNT_SETATTR = 442  # same number on x86_64 and aarch64, since Linux 5.12
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1


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
    REMOUNT = 32
    BIND = 4096
    RECURSIVE = 16384
    PRIVATE = 1 << 18
    SHARED = 1 << 20


def unshare(kinds: Namespace) -> None:
    """Enter new namespaces of these kinds; a new PID namespace applies to children only."""
    _check(_libc.unshare(int(kinds)), "unshare", kinds.name or str(int(kinds)))


def enter(namespace_file: Path, kind: Namespace) -> None:
    """Enter the namespace of a file in /proc/<pid>/ns."""
    descriptor = os.open(namespace_file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(_libc.setns(descriptor, int(kind)), "setns", str(namespace_file))
    finally:
        os.close(descriptor)


def mount(
    source: str | Path,
    target: Path,
    fs_type: str = "",
    flags: Mount = Mount.NONE,
    options: str = "",
) -> None:
    """Mount `source`, a file system of type `fs_type`, at `target`."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        fs_type.encode() or None,
        ctypes.c_ulong(int(flags)),
        options.encode() or None,
    )
    _check(result, "mount", f"{source} at {target}")


def bind(source: Path, target: Path, *, read_only: bool = False, recursive: bool = False) -> None:
    """Bind-mount `source` at `target`; if `recursive`, the mounts below it too. `read_only` applies to all of them."""
    mount(source, target, flags=Mount.BIND | (Mount.RECURSIVE if recursive else Mount.NONE))
    if read_only and recursive:
        _make_read_only(target)
    elif read_only:
        mount("none", target, flags=Mount.REMOUNT | Mount.BIND | Mount.READ_ONLY)


def _make_read_only(target: Path) -> None:
    """Make a mount and all mounts below it read-only; a remount would change only the topmost mount."""
    # struct mount_attr: set, clear, propagation, user namespace.
    attributes = struct.pack("=4Q", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    result = _libc.syscall(
        _MOUNT_SETATTR,
        _AT_FDCWD,
        os.fsencode(target),
        _AT_RECURSIVE,
        attributes,
        ctypes.c_size_t(len(attributes)),
    )
    _check(result, "mount_setattr", str(target))


def unmount(target: Path) -> None:
    """Detach the mount at `target` and all mounts below it, lazily."""
    _check(_libc.umount2(os.fsencode(target), _MNT_DETACH), "umount", str(target))


def pivot_root(new_root: Path) -> None:
    """Make `new_root`, a mount point, the root of this mount namespace, and detach the old root."""
    os.chdir(new_root)
    number = _PIVOT_ROOT[os.uname().machine]
    # If both arguments are the same folder, the old root is mounted over the new one, and can be detached.
    _check(_libc.syscall(number, b".", b"."), "pivot_root", str(new_root))
    unmount(Path())
    os.chdir("/")


def _check(result: int, call: str, subject: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}", subject)
