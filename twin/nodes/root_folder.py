"""The file system of a machine: the host's programs, read-only, and folders of its own for all that changes.

A chroot into an image would need one; the host's own `/usr` is there, and right for the host's containerd.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from twin.nodes import linux, machine_config
from twin.nodes.linux import Mount
from twin.nodes.processes import wait_until

# Never bound from the host. What a machine must see below them is bound path by path.
OWN = ("proc", "sys", "dev", "run", "tmp", "var", "mnt", "lost+found", machine_config.INSIDE.name)
# In a namespace of our own a tmpfs hides /sys: a place for the new root that exists on every host and where
# nobody keeps files that we might need.
BUILDING_SITE = Path("/sys")
PASS_ON_SECONDS = 2.0
# What the kubelet insists on, on any host. It gets files that say so; the host's values stay as they are.
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
    """The folders of the host that are a machine's own.

    Attributes:
        disk: becomes /var.
        config: becomes /everstep, read-only.
        shared: becomes /mnt/everstep, the only thing machines have in common.
    """

    disk: Path
    config: Path
    shared: Path


def build(own: Folders, needed: Sequence[Path], more: Mapping[Path, Path]) -> None:
    """Make a new root for this mount namespace and move into it.

    Args:
        own: what is the machine's own.
        needed: host paths that must be visible under their own names, read-only.
        more: what else is to be seen, read-only: where in the machine, and what of the host.
    """
    linux.mount("none", Path("/"), flags=Mount.PRIVATE | Mount.RECURSIVE)
    root = BUILDING_SITE
    linux.mount("root", root, "tmpfs", options="mode=755")
    for entry in sorted(Path("/").iterdir()):
        if entry.name not in OWN:
            _show(entry, root)
    for name in OWN:
        (root / name).mkdir(exist_ok=True)
    _bind(own.disk, root / "var")
    for name in ("run", "tmp"):
        linux.mount(
            name, root / name, "tmpfs", options="mode=1777" if name == "tmp" else "mode=755"
        )
    _bind(own.config, root / machine_config.INSIDE.relative_to("/"), read_only=True)
    _bind(own.shared, root / machine_config.SHARED.relative_to("/"))
    for path in hidden(needed):
        _bind(path, root / path.relative_to("/"), read_only=True)
    for inside, path in more.items():
        _bind(path, root / inside.relative_to("/"), read_only=True)
    linux.bind(Path("/dev"), root / "dev", recursive=True)
    linux.mount("proc", root / "proc", "proc")
    linux.pivot_root(root)
    linux.mount("sysfs", Path("/sys"), "sysfs", Mount.READ_ONLY)
    _mount_if_there("tmpfs", Path("/dev/shm"), "mode=1777")  # noqa: S108 - a mount point, not a file
    linux.mount("none", Path("/"), flags=Mount.SHARED | Mount.RECURSIVE)


def hidden(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that a machine would not see, since they lie in folders it has of its own."""
    return sorted({path for path in paths if path.is_absolute() and path.parts[1] in OWN})


def mount_cgroups(version: int, controllers: Sequence[str]) -> None:
    """Mount the cgroups, of which a machine sees its own part as the whole.

    With version 2 a cgroup that holds processes cannot pass controllers on: the caller moves to a leaf.
    """
    top = Path("/sys/fs/cgroup")
    if version == 2:
        linux.mount("cgroup2", top, "cgroup2")
        leaf = top / "init"
        leaf.mkdir()
        (leaf / "cgroup.procs").write_text("0")
        for controller in (top / "cgroup.controllers").read_text().split():
            # Refused while the process that booted us is still in the top, which it leaves by ending.
            wait_until(partial(_passed_on, top, controller), PASS_ON_SECONDS)
        return
    linux.mount("cgroups", top, "tmpfs", options="mode=755")
    for name in controllers:
        (top / name).mkdir()
        options = "none,name=systemd" if name == "systemd" else name
        linux.mount("cgroup", top / name, "cgroup", options=options)


def _passed_on(top: Path, controller: str) -> bool:
    try:
        (top / "cgroup.subtree_control").write_text(f"+{controller}")
    except OSError:
        return False
    return True


def hide_sysctls(folder: Path = Path("/run/sysctl")) -> None:
    """Put private files over the sysctls that belong to the whole host."""
    folder.mkdir()
    for name, value in PRIVATE_SYSCTLS.items():
        file, target = folder / name.replace("/", "."), Path("/proc/sys") / name
        file.write_text(f"{value}\n")
        if target.exists():
            linux.bind(file, target)


def _show(entry: Path, root: Path) -> None:
    target = root / entry.name
    if entry.is_symlink():
        target.symlink_to(entry.readlink())
    elif entry.is_dir():
        target.mkdir()
        linux.bind(entry, target, read_only=True, recursive=True)


def _bind(source: Path, target: Path, *, read_only: bool = False) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    linux.bind(source, target, read_only=read_only)


def _mount_if_there(kind: str, target: Path, options: str) -> None:
    if target.is_dir():
        linux.mount(kind, target, kind, options=options)
