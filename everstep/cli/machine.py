"""What this machine must be and have for the twin: asked before anything is started.

Each check is a function that gives a `Check`; `everstep doctor` prints them all, `everstep up`
stops where one of them is fatal. Nothing is changed here.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from everstep.errors import EverstepError

LEAST_DISK_GIB = 8
"""Images, their unpacked layers and the data set, with room for a build."""

LEAST_MEMORY_GIB = 6
"""Control plane and four machines 1.5 GiB, three workers about 1 GiB each, and some air."""

OWN_CLUSTER = (
    "Or train on a cluster of your own: name its kubeconfig in the stack file,\n"
    "  everstep:cluster: {kind: existing, kubeconfig: ~/.kube/config}"
)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        what: its name.
        good: whether it is as it should be, or will be made so without further ado.
        found: how it is.
        remedy: what to do, or who does it.
        fatal: whether `up` stops where it is not good.
        pending: whether it is still to be made, by `up` or when it is wanted.
    """

    what: str
    good: bool
    found: str
    remedy: str = ""
    fatal: bool = True
    pending: bool = False


def checks(state: Path) -> list[Check]:
    """Everything that matters for the twin on this machine."""
    as_root = root()
    made_by_root = [namespaces()] if as_root.good else []  # others may not make them anyway
    return [system(), as_root, *made_by_root, control_groups(), room(state), memory()]


def may_install(found: Iterable[Check]) -> bool:
    """Whether Debian packages can be installed from here: by root, where there is apt."""
    is_root = any(check.what == "root" and check.good for check in found)
    return is_root and shutil.which("apt-get") is not None


def system() -> Check:
    """The twin is made of Linux namespaces."""
    name = platform.system()
    return Check("Linux", name == "Linux", f"{name} {platform.release()}", OWN_CLUSTER)


def root() -> Check:
    """Namespaces with networks and mounts of their own need root."""
    uid = os.geteuid()
    return Check("root", uid == 0, f"uid {uid}", f"Run it as root, or with sudo.\n{OWN_CLUSTER}")


def namespaces() -> Check:
    """Whether the kernel lets us make the namespaces that a machine is made of."""
    command = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "true"]
    what = "namespaces"
    remedy = (
        "In a container, start it with --privileged (or CAP_SYS_ADMIN and CAP_NET_ADMIN).\n"
        + OWN_CLUSTER
    )
    if shutil.which("unshare") is None:
        return Check(what, good=False, found="no unshare", remedy="apt-get install util-linux")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = "net mount pid ipc uts" if not done.returncode else done.stderr.strip()
    return Check(what, done.returncode == 0, found, remedy)


def control_groups() -> Check:
    """Version 1 and 2 both serve; neither is a fault."""
    mounted = Path("/sys/fs/cgroup")
    if (mounted / "cgroup.controllers").exists():
        return Check("cgroups", good=True, found="version 2")
    v1 = (mounted / "memory").is_dir() and (mounted / "pids").is_dir()
    remedy = "Mount the control groups: /sys/fs/cgroup holds none."
    return Check("cgroups", v1, "version 1" if v1 else "none", remedy)


def room(folder: Path) -> Check:
    """Free disk where the state goes."""
    there = next(path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    free = shutil.disk_usage(there).free / 2**30
    remedy = f"Free {LEAST_DISK_GIB} GiB there, or set EVERSTEP_STATE to a folder on a larger disk."
    return Check(
        "disk", free >= LEAST_DISK_GIB, f"{free:.0f} GiB free in {there}", remedy, fatal=False
    )


def memory() -> Check:
    """Memory that could be had without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return Check("memory", good=True, found="unknown", fatal=False)
    free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 2**20
    remedy = (
        f"The local stack wants {LEAST_MEMORY_GIB} GiB: lower job.replicas, or stop other work."
    )
    return Check(
        "memory", free >= LEAST_MEMORY_GIB, f"{free:.0f} GiB available", remedy, fatal=False
    )


def require(found: Iterable[Check]) -> list[Check]:
    """Stop at what makes the twin impossible; give what is only doubtful.

    Raises:
        EverstepError: something fatal is missing; everything fatal is named at once.
    """
    bad = [check for check in found if not check.good]
    fatal = [check for check in bad if check.fatal]
    if fatal:
        named = "; ".join(f"{check.what} ({check.found})" for check in fatal)
        remedies = dict.fromkeys(line for check in fatal for line in check.remedy.splitlines())
        raise EverstepError(f"the local stack needs {named}", "\n".join(remedies))
    return bad
