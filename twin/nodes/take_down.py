"""Removes a twin: first what runs, found by its cgroup, then what lies about, and goes on past whatever fails."""

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from everstep.errors import EverstepError
from everstep.progress import Progress
from twin.nodes import linux, mounts, processes
from twin.nodes.cgroups import Tree
from twin.nodes.layout import Layout


@dataclass
class Sweep:
    """Removes things one after another and remembers what would not go."""

    kept: list[str] = field(default_factory=list)

    def attempt(self, what: str, action: Callable[[], object]) -> None:
        """Do it; a failure is remembered, not raised."""
        try:
            action()
        except OSError as error:
            self.kept.append(f"{what}: {error}")


def take_down(layout: Layout, tree: Tree, progress: Progress) -> None:
    """Remove everything of a twin. The caller holds the lock, whose file goes too.

    Raises:
        EverstepError: at the end, naming what could not be removed.
    """
    sweep = Sweep()
    with progress.step(f"Taking down the twin {layout.name!r}"):
        sweep.attempt("its processes and cgroups", lambda: tree.kill(layout.identity))
        for record in [
            *layout.control_plane.glob("*.json"),
            *layout.machines.glob("*/process.json"),
        ]:
            sweep.attempt(f"the process of {record}", partial(_end, record))
        for target in mounts.below(layout.state):
            sweep.attempt(f"the mount at {target}", partial(linux.unmount, target))
        sweep.attempt("its folder", lambda: _remove(layout.state))
        with contextlib.suppress(
            OSError
        ):  # the root may hold other twins, or be a folder of the user's
            layout.state.parent.rmdir()
    if sweep.kept:
        raise EverstepError(
            "Not everything of the twin could be removed:\n"
            + "\n".join(f"  {k}" for k in sweep.kept),
            "`everstep doctor` says how to remove the rest.",
        )


def _end(record: Path) -> None:
    if process := processes.load(record):
        process.kill()


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
