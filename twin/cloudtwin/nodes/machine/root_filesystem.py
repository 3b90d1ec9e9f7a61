"""The root file system of a machine: the host's programs, read-only, and writable folders of its own.

With the host's `/usr`, a machine needs no image of its own and runs the host's containerd.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.nodes.linux import syscalls
from cloudtwin.nodes.linux.processes import wait_until
from cloudtwin.nodes.linux.syscalls import Mount
from cloudtwin.nodes.machine import configuration

# Folders that are not bound read-only from the host. Paths below them that a machine needs are bound one by one.
OWN_FOLDERS = (
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "var",
    "mnt",
    "lost+found",
    configuration.CONFIG_FOLDER.name,
)
# The new root is built on a tmpfs over /sys, which exists on every host and holds no files that machines need.
NEW_ROOT = Path("/sys")
DELEGATE_SECONDS = 60.0  # limit on a busy host; typically 0.1
# Values that the kubelet requires. Private files provide them; the host's values do not change.
PRIVATE_SYSCTLS = {
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
}


@dataclass(frozen=True)
class Folders:
    """The machine's folders on the host.

    Attributes:
        disk: mounted at /var.
        config: mounted read-only at /cloudtwin.
        shared: the folder that all machines share.
        shared_mount: mount point of `shared` in the machine.
    """

    disk: Path
    config: Path
    shared: Path
    shared_mount: Path


def build(folders: Folders, host_paths: Sequence[Path], mounts: Mapping[Path, Path]) -> None:
    """Build a new root for this mount namespace and change to it.

    Args:
        folders: the machine's folders.
        host_paths: host paths that are mounted read-only at the same paths.
        mounts: further read-only mounts: path in the machine -> path on the host.
    """
    syscalls.mount("none", Path("/"), flags=Mount.PRIVATE | Mount.RECURSIVE)
    root = NEW_ROOT
    syscalls.mount("root", root, "tmpfs", options="mode=755")
    for entry in sorted(Path("/").iterdir()):
        if entry.name not in OWN_FOLDERS:
            _mirror(entry, root)
    for name in OWN_FOLDERS:
        (root / name).mkdir(exist_ok=True)
    _bind(folders.disk, root / "var")
    for name in ("run", "tmp"):
        syscalls.mount(
            name, root / name, "tmpfs", options="mode=1777" if name == "tmp" else "mode=755"
        )
    _bind(folders.config, root / configuration.CONFIG_FOLDER.relative_to("/"), read_only=True)
    _bind(folders.shared, root / folders.shared_mount.relative_to("/"))
    for path in paths_to_mount(host_paths):
        _bind(path, root / path.relative_to("/"), read_only=True)
    for target, path in mounts.items():
        _bind(path, root / target.relative_to("/"), read_only=True)
    syscalls.bind(Path("/dev"), root / "dev", recursive=True)
    syscalls.mount("proc", root / "proc", "proc")
    syscalls.pivot_root(root)
    syscalls.mount("sysfs", Path("/sys"), "sysfs", Mount.READ_ONLY)
    _mount_if_present("tmpfs", Path("/dev/shm"), "mode=1777")  # noqa: S108 - a mount point, not a file
    syscalls.mount("none", Path("/"), flags=Mount.SHARED | Mount.RECURSIVE)


def paths_to_mount(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that must be mounted, since the host's folder above them is not mounted."""
    return sorted({path for path in paths if path.is_absolute() and path.parts[1] in OWN_FOLDERS})


def mount_cgroups(version: int, controllers: Sequence[str]) -> None:
    """Mount the cgroups; in the machine's cgroup namespace its own cgroup is the root.

    In version 2 a cgroup with processes cannot delegate controllers: the caller moves to a leaf.

    Args:
        version: 1 or 2.
        controllers: folders of the hierarchies of version 1; ignored in version 2.

    Raises:
        OSError: a mount fails.
        TwinError: a controller of version 2 cannot be delegated.
    """
    top = Path("/sys/fs/cgroup")
    if version == 2:
        syscalls.mount("cgroup2", top, "cgroup2")
        leaf = top / "init"
        leaf.mkdir()
        (leaf / "cgroup.procs").write_text("0")
        delegate_controllers(top)
        return
    syscalls.mount("cgroups", top, "tmpfs", options="mode=755")
    for name in controllers:
        (top / name).mkdir()
        options = "none,name=systemd" if name == "systemd" else name
        syscalls.mount("cgroup", top / name, "cgroup", options=options)


def delegate_controllers(top: Path) -> None:
    """Delegate all controllers of a version 2 cgroup to its children; the kubelet does not start without them.

    Raises:
        TwinError: a controller cannot be delegated.
    """
    refused = (top / "cgroup.controllers").read_text().split()

    def all_delegated() -> bool:
        refused[:] = [controller for controller in refused if not _try_delegate(top, controller)]
        return not refused

    # Refused until the process that booted the machine has ended: it is still in the top cgroup.
    if not wait_until(all_delegated, DELEGATE_SECONDS):
        raise TwinError(
            f"The machine's cgroup did not delegate {', '.join(refused)} within {DELEGATE_SECONDS:.0f} s.",
            "`vanish` and `return` boot the machine again.",
        )


def _try_delegate(top: Path, controller: str) -> bool:
    try:
        (top / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError:
        return False
    return True


def mount_private_sysctls(folder: Path = Path("/run/sysctl")) -> None:
    """Mount private files over sysctls of the host."""
    folder.mkdir()
    for name, value in PRIVATE_SYSCTLS.items():
        file, target = folder / name.replace("/", "."), Path("/proc/sys") / name
        file.write_text(f"{value}\n")
        if target.exists():
            syscalls.bind(file, target)


def _mirror(entry: Path, root: Path) -> None:
    target = root / entry.name
    if entry.is_symlink():
        target.symlink_to(entry.readlink())
    elif entry.is_dir():
        target.mkdir()
        syscalls.bind(entry, target, read_only=True, recursive=True)


def _bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    syscalls.bind(source, target, read_only=read_only)


def _mount_if_present(fs_type: str, target: Path, options: str) -> None:
    if target.is_dir():
        syscalls.mount(fs_type, target, fs_type, options=options)
