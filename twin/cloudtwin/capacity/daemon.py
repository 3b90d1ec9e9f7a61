"""Start and lookup of a twin's daemon.

Separate from the daemon itself: providers start it and should not import all that it needs.
"""

import os
import sys
from pathlib import Path

from cloudtwin import files
from cloudtwin.nodes.control_plane import components
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.linux.processes import Process

NAME = components.CAPACITY
INHERITED_VARIABLES = (
    "PATH",
    "HOME",
    "XDG_CACHE_HOME",
    "CLOUDTWIN_CACHE",
    "CLOUDTWIN_STATE",
    "CLOUDTWIN_IMAGES",
)
DAEMON_START_SECONDS = 90.0  # limit on a busy host; measured: 0.4


def start(state: Path) -> None:
    """Start the daemon of a running twin, unless it is running. It ends with the twin's `down`."""
    layout = Layout(state)
    if find(layout):
        return
    cgroups = CgroupHierarchies.detect()
    cgroups.create(layout.capacity_cgroup)
    command = [sys.executable, "-P", "-m", "cloudtwin.capacity", "--state", str(state)]
    command_in_cgroup = [*cgroups.command_prefix(layout.capacity_cgroup), *command]
    # Only the variables that the toolchain needs: no credentials in a process that runs for days.
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    python_path = {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    process = processes.start(command_in_cgroup, layout.log(NAME), {**inherited, **python_path})
    # If two daemons are started at the same time, the second daemon exits.
    processes.wait_until(lambda: bool(find(layout)) or not process.alive, DAEMON_START_SECONDS)


def find(layout: Layout) -> Process | None:
    """Return the daemon's process, or None."""
    process = processes.load(layout.process(NAME))
    return process if process and process.alive else None


def last_fault(state: Path, pool: str) -> str:
    """Return the reason why a pool lacks machines; empty if none is recorded."""
    faults = files.read_json(faults_file(state)) or {}
    return str(faults.get(pool, ""))


def faults_file(state: Path) -> Path:
    """Return the file of the reasons why pools lack machines."""
    return state / "cloud" / "faults-of-pools.json"
