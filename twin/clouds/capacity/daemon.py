"""Starts and finds the one process of a twin that makes machines of pools.

Apart from the process itself, since providers start it and should not load all that it needs.
"""

import os
import sys
from pathlib import Path

from twin.nodes import components, files, processes
from twin.nodes.cgroups import Tree
from twin.nodes.layout import Layout
from twin.nodes.processes import Process

NAME = components.COMPANION
INHERITED = ("PATH", "HOME", "XDG_CACHE_HOME", "EVERSTEP_STATE", "EVERSTEP_TWIN_IMAGES")
START_SECONDS = 15.0  # here it takes 0.4


def start(state: Path) -> None:
    """Start the daemon of a twin that stands; one that runs stays. It ends with the twin's `down`."""
    layout = Layout(state)
    if find(layout):
        return
    tree = Tree.here()
    tree.create(layout.companion_cgroup)
    command = [sys.executable, "-P", "-m", "twin.clouds.capacity", "--state", str(state)]
    enclosed = [*tree.enclosing(layout.companion_cgroup), *command]
    # What the toolchain goes by, and no more: no credentials in a process that lives for days.
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    source = {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}
    process = processes.start(enclosed, layout.log(NAME), {**inherited, **source})
    # Where two start it at once, the second ends by itself; either is fine.
    processes.wait_until(lambda: bool(find(layout)) or not process.alive, START_SECONDS)


def find(layout: Layout) -> Process | None:
    """Return the daemon's process, where it runs."""
    process = processes.load(layout.process(NAME))
    return process if process and process.alive else None


def last_fault(state: Path, pool: str) -> str:
    """Return why a pool lacks machines, in the daemon's words; empty where it does not."""
    faults = files.read_json(faults_file(state)) or {}
    return str(faults.get(pool, ""))


def faults_file(state: Path) -> Path:
    """Return where the daemon says why a pool lacks machines."""
    return state / "cloud" / "faults-of-pools.json"
