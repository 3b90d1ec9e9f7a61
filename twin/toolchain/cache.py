"""Things that are costly to make, made once: keyed by what they are made from, whole or not there.

A finished thing is a folder `<name>-<key>`. It is made in a staging folder beside it and renamed
when it is complete, so a build that was killed leaves nothing that could be taken for a result.
Whoever makes one holds a lock, so that several runs at once share one build; under the lock, a
staging folder is always somebody's wreck and is removed. Locks are flock(2), which the kernel
releases however their holder ends.
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

from everstep.errors import EverstepError
from everstep.progress import Progress

KEY_LENGTH = 16
KEPT_VERSIONS = 3  # other checkouts of the project may be using older ones


def digest(parts: Iterable[bytes | str]) -> str:
    """Return a short key of all parts; parts are kept apart, so ("a", "b") is not ("ab",)."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big"))
        total.update(data)
    return total.hexdigest()[:KEY_LENGTH]


@contextmanager
def locked(path: Path, progress: Progress, what: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock file `path`, waiting, and saying so, while another process holds it.

    Args:
        path: the lock file; made with its folder, never removed.
        progress: where a wait is announced.
        what: what the other holder is doing, as it should read after "Waiting for another run: ".
        shared: hold it together with other readers.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step(f"Waiting for another run: {what}"):
                fcntl.flock(lock, kind)
        yield


def ensure(
    folder: Path, name: str, key: str, progress: Progress, make: Callable[[Path], None]
) -> Path:
    """Return the folder `<name>-<key>`, made by `make(staging folder)` if it is not there yet.

    Whatever `make` raises passes through, and the staging folder is removed first.

    Raises:
        EverstepError: the disk is full.
    """
    finished = folder / f"{name}-{key}"
    with suppress(FileNotFoundError):
        os.utime(finished)  # the time of its last use, which decides what is pruned
        return finished
    what = f"making {name}"
    with full_disk_explained(folder, what), locked(folder / f"{name}.lock", progress, what):
        if finished.is_dir():  # by whom we waited for
            return finished
        wrecks = list(folder.glob(f".staging-{name}-*"))
        for wreck in wrecks:
            remove(wreck)
        # A name of its own: a compiler that outlived its killed parent may write to the old one.
        staging = folder / f".staging-{name}-{key}-{secrets.token_hex(4)}"
        try:
            staging.mkdir()
            make(staging)
            _flush(staging)  # the rename must not reach the disk before what it promises
            staging.rename(finished)
            # Once more the wrecks: what was still writing there is gone by now.
            for unused in [*wrecks, *versions(folder, name)[KEPT_VERSIONS:]]:
                remove(unused)
        except BaseException:
            remove(staging)
            raise
    return finished


def versions(folder: Path, name: str) -> list[Path]:
    """Return the finished folders of a thing, whatever their key, the one used last first."""
    pattern = re.compile(rf"{re.escape(name)}-[0-9a-f]{{{KEY_LENGTH}}}")
    found = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


@contextmanager
def full_disk_explained(folder: Path, doing: str) -> Iterator[None]:
    """Turn "no space left on device" into what a user can act on.

    Raises:
        EverstepError: the disk that holds `folder` ran full, or its quota is used up.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise EverstepError(
            f"The disk ran full while {doing} in {folder}.",
            "Free some space there, or point XDG_CACHE_HOME to a folder on a larger disk.",
        ) from error


def _flush(folder: Path) -> None:
    """Bring a folder's own files to the disk.

    Not those of its subfolders, which can be a hundred thousand: a power cut may tear one of them.
    """
    for path in folder.iterdir():
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def remove(folder: Path) -> None:
    """Remove a folder and everything in it; being absent is fine."""
    shutil.rmtree(folder, ignore_errors=True)
