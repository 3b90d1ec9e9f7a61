"""Cgroups of the host: one for each twin and, in it, one for the control plane, the capacity daemon and each machine.

The cgroup of a machine accounts for its containers, and the machine can be frozen as a whole. The cgroup of a twin
identifies all of its processes, even if their records are lost.

Version 1 has one hierarchy for each controller, version 2 a single one. Version 2 has not been tested on a host.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.nodes.linux.processes import wait_until

ROOT = Path("/sys/fs/cgroup")
PREFIX = "cloudtwin-"
# Controllers that containerd and the kubelet need, and the named hierarchy `systemd`, which runc looks for.
V1_CONTROLLERS = (
    "cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd",
)  # fmt: skip
# Of these, the kubelet and runc do not start without one, and machines are frozen with the freezer.
V1_REQUIRED = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids")
V2_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids", "hugetlb")
# A new folder accepts no process while these files are empty.
V1_INHERITED_FILES = ("cpuset.cpus", "cpuset.mems")
CHANGE_SECONDS = 60.0
"""Limit for the end or the freeze of all processes on a busy host; typically 0.1."""


@dataclass(frozen=True)
class CgroupHierarchies:
    """The cgroup hierarchies of this host.

    Attributes:
        root: their mount point.
        version: 1 or 2.
        controllers: for version 1 the folders below the root; empty for version 2.
    """

    root: Path
    version: int
    controllers: tuple[str, ...] = ()

    @classmethod
    def detect(cls, root: Path = ROOT) -> "CgroupHierarchies":
        """Return the hierarchies of this host; a hybrid of both versions counts as version 1."""
        if (root / "cgroup.controllers").exists():
            return cls(root, 2)
        mounted_controllers = (
            name for name in V1_CONTROLLERS if (root / name / "cgroup.procs").exists()
        )
        return cls(root, 1, tuple(mounted_controllers))

    def problems(self) -> list[str]:
        """Return the reasons why no cgroup can be created, such as a read-only hierarchy; empty if it is possible."""
        if self.version == 1 and not self.controllers:
            return [f"no cgroup hierarchies in {self.root}"]
        required = V1_REQUIRED if self.version == 1 else ()
        missing = [name for name in required if name not in self.controllers]
        reasons = [f"no cgroup hierarchy {', '.join(missing)} in {self.root}"] if missing else []
        read_only = [str(folder) for folder in self.folders("") if not _is_writable(folder)]
        return [*reasons, f"read-only cgroups: {', '.join(read_only)}"] if read_only else reasons

    def folders(self, path: str) -> list[Path]:
        """Return the folders of one cgroup, one for each hierarchy."""
        if self.version == 2:
            return [self.root / path]
        return [self.root / name / path for name in self.controllers]

    def create(self, path: str) -> None:
        """Create a cgroup and its parents."""
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            self._create_one("/".join(parts[:depth]))

    def add(self, path: str, pid: int) -> None:
        """Move a process, with its threads, into a cgroup."""
        for folder in self.folders(path):
            (folder / "cgroup.procs").write_text(str(pid))

    def command_prefix(self, path: str) -> list[str]:
        """Return a command prefix that moves a program into a cgroup before it starts.

        If it were moved after its start and its parent were killed in between, it would stay outside the cgroup.
        """
        lists = " ".join(str(folder / "cgroup.procs") for folder in self.folders(path))
        return [
            "sh",
            "-c",
            f'for list in {lists}; do echo $$ > "$list" || exit; done; exec "$@"',
            "sh",
        ]

    def processes(self, path: str) -> set[int]:
        """Return every process in a cgroup or below it."""
        pids: set[int] = set()
        for folder in self.folders(path):
            for cgroup in _deepest_first(folder):
                with contextlib.suppress(OSError):
                    listing = (cgroup / "cgroup.procs").read_text()
                    pids.update(int(line) for line in listing.split())
        return pids - {0}  # 0 stands for a process that is not visible in this PID namespace

    def freeze(self, path: str, *, frozen: bool) -> bool:
        """Freeze or thaw all processes; return True if the kernel finished in time."""
        if self.version == 1:
            state = self.root / "freezer" / path / "freezer.state"
            target_state = "FROZEN" if frozen else "THAWED"
            state.write_text(target_state)
            return wait_until(lambda: state.read_text().strip() == target_state, CHANGE_SECONDS)
        folder = self.root / path
        (folder / "cgroup.freeze").write_text(str(int(frozen)))
        line = f"frozen {int(frozen)}"
        return wait_until(
            lambda: line in (folder / "cgroup.events").read_text().splitlines(), CHANGE_SECONDS
        )

    def is_frozen(self, path: str) -> bool:
        """Return True if the processes are frozen or being frozen."""
        state = (
            self.root / "freezer" / path / "freezer.state"
            if self.version == 1
            else self.root / path / "cgroup.freeze"
        )
        try:
            return state.read_text().strip() in {"FROZEN", "FREEZING", "1"}
        except OSError:
            return False

    def kill(self, path: str) -> None:
        """Kill every process in a cgroup, including frozen processes, and remove the cgroup.

        Raises:
            OSError: a process or folder remains.
        """
        if not any(folder.exists() for folder in self.folders(path)):
            return
        self._thaw_all(path)
        wait_until(lambda: not self._kill_once(path), CHANGE_SECONDS)
        self.remove(path)

    def remove(self, path: str) -> None:
        """Remove an empty cgroup and the cgroups below it.

        Raises:
            OSError: a cgroup is not empty.
        """
        for folder in self.folders(path):
            for cgroup in _deepest_first(folder):
                with contextlib.suppress(FileNotFoundError):
                    _remove_folder(cgroup)

    def twin_names(self, prefix: str = PREFIX) -> set[str]:
        """Return the names of all twins' cgroups."""
        return {
            folder.name
            for parent in self.folders("")
            for folder in parent.glob(f"{prefix}*")
            if folder.is_dir()
        }

    def _thaw_all(self, path: str) -> None:
        """Thaw frozen processes at any depth: in version 1, a frozen process dies only after it is thawed."""
        if self.version == 1:
            for cgroup in _deepest_first(self.root / "freezer" / path):
                with contextlib.suppress(OSError):  # removed meanwhile
                    (cgroup / "freezer.state").write_text("THAWED")

    def _kill_once(self, path: str) -> set[int]:
        pids = self.processes(path)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pids

    def _create_one(self, path: str) -> None:
        for folder in self.folders(path):
            folder.mkdir(exist_ok=True)
            if self.version == 1:
                _inherit(folder)
            else:
                _delegate(folder.parent)


def _is_writable(folder: Path) -> bool:
    """Return True if cgroups can be created in a folder; in a container without --privileged it is read-only."""
    is_mounted_read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
    return os.access(folder, os.W_OK | os.X_OK) and not is_mounted_read_only


def _inherit(folder: Path) -> None:
    for name in V1_INHERITED_FILES:
        file = folder / name
        if file.exists() and not file.read_text().strip():
            file.write_text((folder.parent / name).read_text())


def _delegate(parent: Path) -> None:
    """Delegate the controllers of a folder to its children."""
    available_controllers = (parent / "cgroup.controllers").read_text().split()
    for controller in set(available_controllers) & set(V2_CONTROLLERS):
        # The controller may be in use elsewhere; the kubelet reports missing controllers.
        with contextlib.suppress(OSError):
            (parent / "cgroup.subtree_control").write_text(f"+{controller}")


def _deepest_first(top: Path) -> Iterator[Path]:
    """Yield the folders of a cgroup and of all cgroups below it in the order in which they can be removed.

    The kubelet and runc may remove folders at the same time: `os.walk` skips these, `Path.rglob` raises an error.
    """
    for folder, _, _ in os.walk(top, topdown=False):
        yield Path(folder)


def _remove_folder(folder: Path) -> None:
    # The kernel reports the folder as busy for a moment after the last process died.
    try:
        folder.rmdir()
    except OSError:
        if not wait_until(lambda: _try_remove(folder), CHANGE_SECONDS):
            folder.rmdir()


def _try_remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
