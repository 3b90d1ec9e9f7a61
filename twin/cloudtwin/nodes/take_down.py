"""Removal of a twin: its processes, found by cgroup, then mounts and files; failures do not stop the rest."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cloudtwin import owned_folders
from cloudtwin.errors import TwinError
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import mounts, processes, syscalls
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.progress import Progress


def take_down(layout: Layout, cgroups: CgroupHierarchies, progress: Progress) -> None:
    """Remove everything of a twin. The caller holds the lock, whose file is removed too.

    Raises:
        TwinError: its folder has files of another origin, and nothing was changed; or at the end, with all that could
            not be removed.
    """
    owned_folders.require_no_foreign_files(layout.state)
    failures: list[str] = []

    def attempt(description: str, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            failures.append(f"  {description}: {error}")

    with progress.step(f"Taking down the twin {layout.name!r}"):
        attempt("its processes and cgroups", lambda: cgroups.kill(layout.identity))
        for record in [
            *layout.control_plane.glob("*.json"),
            *layout.machines.glob("*/process.json"),
        ]:
            attempt(f"the process of {record}", partial(_kill, record))
        for target in mounts.mount_points_below(layout.state):
            attempt(f"the mount at {target}", partial(syscalls.unmount, target))
        attempt("its folder", lambda: owned_folders.remove(layout.state))
        # The state root may hold other twins, or belong to the user.
        with contextlib.suppress(OSError):
            layout.state.parent.rmdir()
    if failures:
        raise TwinError(
            "Parts of the twin could not be removed:\n" + "\n".join(failures),
            "The command `doctor` shows how to remove the rest.",
        )


def _kill(record: Path) -> None:
    if process := processes.load(record):
        process.kill()
