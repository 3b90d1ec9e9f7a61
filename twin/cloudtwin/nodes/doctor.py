"""Search for running twins on this host and for the remains of stopped twins, without changing anything."""

import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cloudtwin.nodes.control_plane.components import NETWORK_HOLDER
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import mounts, processes
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.nodes.model import Leftover, RunningTwin
from cloudtwin.owned_folders import is_owned
from cloudtwin.paths import NAME_VARIABLE, STATE_VARIABLE, state_root


def down_command(state: Path) -> str:
    """Return the command that takes down the twin of a state folder."""
    root, name = shlex.quote(str(state.parent)), shlex.quote(state.name)
    return f"{STATE_VARIABLE}={root} {NAME_VARIABLE}={name} python -m cloudtwin down"


def leftovers(command: Callable[[Path], str] = down_command) -> list[Leftover]:
    """Return the remains of the twins that are not running.

    State folders and mounts are searched for only below the state root, where other folders may belong to the user;
    processes and cgroups, on the whole host.

    Args:
        command: returns the shell command that takes down the twin of a state folder.
    """
    cgroups, root = CgroupHierarchies.detect(), state_root()
    running_folders = set(running_twins(cgroups))
    folders = [folder for folder in sorted(root.glob("*")) if folder.is_dir() and is_owned(folder)]
    stopped = [folder for folder in folders if folder not in running_folders]
    result = [Leftover("state", str(folder), command(folder)) for folder in stopped]
    identities = {Layout(folder).identity for folder in running_folders}
    for name in sorted(cgroups.twin_names() - identities):
        result += [_process(pid) for pid in sorted(cgroups.processes(name))]
        result.append(_cgroup(name, cgroups))
    for target in mounts.mount_points_below(root):
        if any(target.is_relative_to(folder) for folder in stopped):
            result.append(
                Leftover("mount", str(target), f"umount --lazy {shlex.quote(str(target))}")
            )
    return result


def twins(command: Callable[[Path], str] = down_command) -> list[RunningTwin]:
    """Return every twin that is running on this host, the oldest first, including twins of killed tests.

    Args:
        command: returns the shell command that takes down the twin of a state folder.
    """
    cgroups = CgroupHierarchies.detect()
    unsorted_twins = [
        _running_twin(folder, cgroups, command(folder)) for folder in running_twins(cgroups)
    ]
    return sorted(unsorted_twins, key=lambda twin: (-twin.age_seconds, twin.state))


def _running_twin(folder: Path, cgroups: CgroupHierarchies, command: str) -> RunningTwin:
    layout = Layout(folder)
    network_holder = processes.load(layout.process(NETWORK_HOLDER))
    started_seconds = network_holder.started / os.sysconf("SC_CLK_TCK") if network_holder else 0.0
    prefix = Path(layout.machine_cgroup("")).name
    machines = {
        child.name.removeprefix(prefix)
        for cgroup in cgroups.folders(layout.identity)
        for child in cgroup.glob(f"{prefix}*")
    }
    age = int(time.clock_gettime(time.CLOCK_BOOTTIME) - started_seconds)
    return RunningTwin(str(folder), age, tuple(sorted(machines)), command)


def running_twins(cgroups: CgroupHierarchies) -> Iterator[Path]:
    """Yield the state folders of the running twins: their folders have the record of a live network holder."""
    for name in cgroups.twin_names():
        for pid in cgroups.processes(f"{name}/{Layout.CONTROL_PLANE}"):
            state = state_of_network_holder(_command_line(pid))
            if state and Layout(state).identity == name:
                network_holder = processes.load(Layout(state).process(NETWORK_HOLDER))
                if network_holder and network_holder.pid == pid and network_holder.alive:
                    yield state


def state_of_network_holder(command: list[str]) -> Path | None:
    """Return the state folder in a network holder's command line, or None for any other program."""
    if command[1:3] != ["-m", "cloudtwin.nodes.control_plane.network_holder"] or len(command) != 4:
        return None
    return Path(command[3])


def _command_line(pid: int) -> list[str]:
    try:
        # Arguments may be any bytes.
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).rstrip("\0").split("\0")
    except OSError:
        return []


def _process(pid: int) -> Leftover:
    command = os.fsencode(" ".join(_command_line(pid))).decode(errors="replace")
    return Leftover("process", f"{pid} {command[:120]}", f"kill -9 {pid}")


def _cgroup(name: str, cgroups: CgroupHierarchies) -> Leftover:
    folders = " ".join(str(folder) for folder in cgroups.folders(name) if folder.exists())
    return Leftover("cgroup", name, f"find {folders} -depth -type d -exec rmdir {{}} ';'")
