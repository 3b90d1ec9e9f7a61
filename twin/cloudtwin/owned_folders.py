"""Marks on the folders of twins and stacks, so that no command removes files of the user.

A user may choose any folder as the state root, such as the top of a disk, and a folder in it may have the name of a
twin. Commands mark the folders that they create, and `down` removes only marked folders. A lock file does not mark a
folder: `down` creates it before it looks at the folder.
"""

import contextlib
import shutil
from pathlib import Path

from cloudtwin import files
from cloudtwin.errors import TwinError

MARKER = ".cloudtwin"
TEXT = (
    "This folder belongs to a twin or a stack: the command `down` removes it with all its files.\n"
)
LOCKS = frozenset({"lock", "up.lock"})
"""Files that commands create before they mark a folder."""
VOLUME = "shared"
"""Folder of the volume, in which a user may put data before the first `up`: it then becomes part of the twin."""
LOGS = ("events.jsonl", "machines.json", "moves-*.json")
"""Files that commands create that only read a cluster."""
EVIDENCE = (
    "twin.json", "pki/ca.crt", "control-plane/*.json", "machines/*/machine.json",
    "pulumi/passphrase", "pulumi/state/.pulumi", "registry/rules",
    "cloud/account-*.json", "cloud/pools.json", "cloud/market.json", "cloud/faults*.json",
    "cloud/capacity-limits.json", "cloud/quotas.json",
)  # fmt: skip
"""Files that only a twin or a stack has; folders of earlier versions have no mark."""


def is_owned(folder: Path) -> bool:
    """Return True for a folder of a twin or a stack."""
    try:
        return (
            (folder / MARKER).is_file()
            or any(True for pattern in EVIDENCE for _ in folder.glob(pattern))
            or _has_options(folder)
            or ((folder / "up.lock").is_file() and (folder / "pulumi").is_dir())
        )
    except OSError:  # not accessible for this user
        return False


def has_foreign_files(folder: Path, *, may_have_data: bool = False) -> bool:
    """Return True for a folder with files that belong neither to a twin nor to a stack.

    Args:
        folder: the folder.
        may_have_data: True if the data of the volume may exist before the twin.
    """
    if not folder.exists() or is_owned(folder):
        return False
    others = (path for path in folder.iterdir() if not _is_lock_or_log(path))
    return any(not (may_have_data and path.name == VOLUME) for path in others)


def require_no_foreign_files(folder: Path, *, may_have_data: bool = False) -> None:
    """Check that a folder is missing, empty, or marked; the arguments are as for `has_foreign_files`.

    Raises:
        TwinError: it has files that belong neither to a twin nor to a stack.
    """
    if has_foreign_files(folder, may_have_data=may_have_data):
        raise TwinError(
            f"{folder} is not the folder of a twin: it has files of another origin.",
            "They were not changed. Choose another state root or another name of the twin, or move the files.",
        )


def claim(folder: Path, *, may_have_data: bool = False) -> None:
    """Create the folder of a twin or a stack, and mark it; the arguments are as for `has_foreign_files`.

    Raises:
        TwinError: it has files that belong neither to a twin nor to a stack.
    """
    require_no_foreign_files(folder, may_have_data=may_have_data)
    if not (folder / MARKER).is_file():
        files.write(folder / MARKER, TEXT)


def mark_new(folder: Path) -> None:
    """Mark a folder that does not exist yet; do nothing with an existing one."""
    if not folder.exists():
        files.write(folder / MARKER, TEXT)


def remove(folder: Path) -> None:
    """Remove the folder of a twin or a stack. The mark is removed last, so that the next command can continue.

    Raises:
        TwinError: it has files that belong neither to a twin nor to a stack.
        OSError: a part cannot be removed.
    """
    require_no_foreign_files(folder)
    if not folder.exists():
        return
    claim(folder)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != MARKER:
            path.unlink(missing_ok=True)
    (folder / MARKER).unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):  # another command removed it
        folder.rmdir()


def _has_options(folder: Path) -> bool:
    """Return True for the folder of a twin whose first start was interrupted; other programs have options, too."""
    options = files.read_json_if_valid(folder / "options.json")
    return options is not None and {"recipes", "shared_mount"} <= options.keys()


def _is_lock_or_log(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        return path.name == "pulumi" and not any(path.iterdir())  # of a preview of a real cloud
    return path.name in LOCKS or any(path.match(pattern) for pattern in LOGS)
