"""Checks that this machine can run the twin, before anything is started.

Each check is a function that returns a `HostCheck`. `everstep doctor` prints all of them; `everstep up` stops
if a fatal check fails. Checks change nothing.
"""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from everstep.cli.errors import CGROUP_FIX, CGROUP_FOLDER
from everstep.errors import EverstepError

MIN_DISK_GIB = 8
"""Images, their unpacked layers and the data set, with space for a build."""

MIN_MEMORY_GIB = 6
"""Control plane and four machines 1.5 GiB, three workers about 1 GiB each, and a reserve."""

OWN_CLUSTER = (
    "Or train on a cluster of your own: name its kubeconfig in the stack file,\n"
    "  everstep:cluster: {kind: existing, kubeconfig: ~/.kube/config}"
)


@dataclass(frozen=True)
class HostCheck:
    """The result of one check.

    Attributes:
        name: the checked property.
        passed: True if the property is as required, or `up` provides it.
        observed: the observed value.
        fix: the action that corrects it, or the command that does so.
        fatal: True if a failure stops `up`.
        pending: True if the checked item does not exist yet and is created later.
    """

    name: str
    passed: bool
    observed: str
    fix: str = ""
    fatal: bool = True
    pending: bool = False


def run_checks(state: Path) -> list[HostCheck]:
    """Return all checks of this machine for a twin with this state folder."""
    root_check = root()
    # Other users can create neither namespaces nor control groups.
    checks_of_root = [namespaces(), control_groups()] if root_check.passed else []
    return [system(), root_check, *checks_of_root, disk(state), memory()]


def may_install(checks: Iterable[HostCheck]) -> bool:
    """Return True if Debian packages can be installed: by root, and with apt."""
    is_root = any(check.name == "root" and check.passed for check in checks)
    return is_root and shutil.which("apt-get") is not None


def system() -> HostCheck:
    """Check for Linux: the twin consists of Linux namespaces."""
    name = platform.system()
    return HostCheck("Linux", name == "Linux", f"{name} {platform.release()}", OWN_CLUSTER)


def root() -> HostCheck:
    """Check for root, which network and mount namespaces need."""
    uid = os.geteuid()
    return HostCheck(
        "root", uid == 0, f"uid {uid}", f"Run it as root, or with sudo.\n{OWN_CLUSTER}"
    )


def namespaces() -> HostCheck:
    """Check that the kernel allows the namespaces of a machine."""
    command = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "true"]
    name = "namespaces"
    fix = f"In a container, start it with --privileged.\n{OWN_CLUSTER}"
    if shutil.which("unshare") is None:
        return HostCheck(
            name, passed=False, observed="no unshare", fix="apt-get install util-linux"
        )
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    observed = "net mount pid ipc uts" if not result.returncode else result.stderr.strip()
    return HostCheck(name, result.returncode == 0, observed, fix)


def control_groups(folder: Path = Path(CGROUP_FOLDER)) -> HostCheck:
    """Check that control groups of version 1 or 2 are mounted and can be created."""
    from cloudtwin.facade import CgroupHierarchies

    hierarchies = CgroupHierarchies.detect(folder)
    problems = hierarchies.problems()
    observed = "; ".join(problems) or f"version {hierarchies.version}"
    return HostCheck("cgroups", not problems, observed, f"{CGROUP_FIX}\n{OWN_CLUSTER}")


def disk(folder: Path) -> HostCheck:
    """Check that the state folder can be written, and the free disk space there."""
    existing_folder = next(path for path in (folder, *folder.parents) if os.access(path, os.F_OK))
    if not (existing_folder.is_dir() and os.access(existing_folder, os.W_OK | os.X_OK)):
        observed = f"{existing_folder} is not a folder that this user can write to"
        return HostCheck(
            "disk",
            passed=False,
            observed=observed,
            fix="Set EVERSTEP_STATE to a new folder of your own.",
        )
    free = shutil.disk_usage(existing_folder).free / 2**30
    fix = f"Free {MIN_DISK_GIB} GiB there, or set EVERSTEP_STATE to a new folder on a larger disk."
    return HostCheck(
        "disk", free >= MIN_DISK_GIB, f"{free:.0f} GiB free in {existing_folder}", fix, fatal=False
    )


def memory(cgroups: Path = Path(CGROUP_FOLDER), process: Path = Path("/proc/self")) -> HostCheck:
    """Check the memory that is available without swapping, in a container within its limit."""
    from cloudtwin.facade import available_bytes

    available = available_bytes(cgroups, process)
    if available is None:
        return HostCheck("memory", passed=True, observed="unknown", fatal=False)
    free = available / 2**30
    fix = (
        f"The local stack needs {MIN_MEMORY_GIB} GiB: lower job.replicas, stop other work, or raise the memory limit "
        "of the container."
    )
    return HostCheck(
        "memory", free >= MIN_MEMORY_GIB, f"{free:.0f} GiB available", fix, fatal=False
    )


def raise_for_failures(checks: Iterable[HostCheck]) -> list[HostCheck]:
    """Raise an error for failed fatal checks; return the other failed checks.

    Raises:
        EverstepError: a fatal check failed; the error names all failed fatal checks.
    """
    failed = [check for check in checks if not check.passed]
    fatal = [check for check in failed if check.fatal]
    if fatal:
        failures = "; ".join(f"{check.name} ({check.observed})" for check in fatal)
        fixes = dict.fromkeys(line for check in fatal for line in check.fix.splitlines())
        raise EverstepError(f"the twin cannot run here: {failures}", "\n".join(fixes))
    return failed
