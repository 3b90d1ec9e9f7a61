"""A cache of build results, keyed by their inputs.

A result is a folder `<name>-<key>`. It is built in a staging folder next to it and renamed when it
is complete, so a killed build leaves no partial result. The build holds a lock, so that concurrent
runs share one build. A staging folder that exists when the lock is acquired belongs to a killed
build and is removed. Locks use flock(2): the kernel releases them when their holder ends.
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.paths import CACHE_VARIABLE
from cloudtwin.progress import Progress

KEY_LENGTH = 16
MAX_VERSIONS = 3  # other checkouts of the project may use older versions


def digest(parts: Iterable[bytes | str]) -> str:
    """Return a short key of all parts; the boundaries count, so ("a", "b") differs from ("ab",)."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "big"))
        hasher.update(data)
    return hasher.hexdigest()[:KEY_LENGTH]


@contextmanager
def locked(path: Path, progress: Progress, purpose: str, *, shared: bool = False) -> Iterator[None]:
    """Lock the file `path` while the block runs; report the wait if another process has the lock.

    Args:
        path: the lock file; created with its folder, never removed.
        progress: receiver of the steps.
        purpose: activity of the other holder, shown after "Waiting for another run: ".
        shared: allow other shared holders.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step(f"Waiting for another run: {purpose}"):
                fcntl.flock(lock, kind)
        yield


def ensure(
    folder: Path, name: str, key: str, progress: Progress, make: Callable[[Path], None]
) -> Path:
    """Return the folder `<name>-<key>`, created by `make(staging folder)` if it does not exist.

    If `make` raises, the staging folder is removed and the exception propagates.

    Raises:
        TwinError: the disk is full.
    """
    result = folder / f"{name}-{key}"
    with suppress(FileNotFoundError):
        os.utime(result)  # the time of the last use, by which versions are pruned
        return result
    purpose = f"building {name}"
    with full_disk_explained(folder, purpose), locked(folder / f"{name}.lock", progress, purpose):
        if result.is_dir():  # the run that had the lock built it
            return result
        # The key is part of the pattern: `image-etcd` must not match a running build of `image-etcd-rejoin`.
        any_key = "[0-9a-f]" * KEY_LENGTH
        abandoned_folders = list(folder.glob(f".staging-{name}-{any_key}-*"))
        for staging_folder in abandoned_folders:
            remove(staging_folder)
        # A unique name: a compiler that outlived its killed parent may still write to the old folder.
        staging = folder / f".staging-{name}-{key}-{secrets.token_hex(4)}"
        try:
            staging.mkdir()
            make(staging)
            _flush(staging)  # the content must reach the disk before the rename
            staging.rename(result)
            # A compiler that outlived its parent may have created these again in the meantime.
            for folder_to_remove in [*abandoned_folders, *versions(folder, name)[MAX_VERSIONS:]]:
                remove(folder_to_remove)
        except BaseException:
            remove(staging)
            raise
    return result


def versions(folder: Path, name: str) -> list[Path]:
    """Return the finished folders of a name with any key, the most recently used first."""
    pattern = re.compile(rf"{re.escape(name)}-[0-9a-f]{{{KEY_LENGTH}}}")
    folders = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    return sorted(folders, key=lambda path: path.stat().st_mtime, reverse=True)


@contextmanager
def full_disk_explained(folder: Path, activity: str) -> Iterator[None]:
    """Convert "no space left on device" into an error with a fix.

    Raises:
        TwinError: the disk that holds `folder` is full, or its quota is used up.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise TwinError(
            f"The disk filled up while {activity} in {folder}.",
            f"Free some space there, or point {CACHE_VARIABLE} to a folder on a larger disk.",
        ) from error


def _flush(folder: Path) -> None:
    """Flush the files directly in a folder to the disk.

    Files in subfolders are skipped, as there can be a hundred thousand: a power cut may truncate them.
    """
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def remove(folder: Path) -> None:
    """Remove a folder and its content; ignore errors, such as a missing folder."""
    shutil.rmtree(folder, ignore_errors=True)
