"""Requirements of a twin on its host."""

import os
import subprocess
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.nodes.linux.cgroups import ROOT, CgroupHierarchies

NAMESPACES = ("mnt", "net", "pid", "ipc", "uts", "cgroup")
# Capabilities with the kernel's numbers.
CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_KILL": 5}


def require_host_support() -> None:
    """Check that machines can be started on this host.

    Raises:
        TwinError: a requirement is missing; the message names all of them.
    """
    if missing := missing_requirements():
        raise TwinError(
            f"A twin cannot run on this host; missing: {', '.join(missing)}.",
            "Run as root on Linux with namespaces and writable cgroups, in a container with --privileged; or use a "
            "Kubernetes cluster of your own through its kubeconfig.",
        )


def missing_requirements(process: Path = Path("/proc/self"), cgroup_root: Path = ROOT) -> list[str]:
    """Return the names of the requirements that this process lacks."""
    missing = [] if os.geteuid() == 0 else ["root"]
    missing += [f"{n} namespaces" for n in NAMESPACES if not (process / "ns" / n).exists()]
    capabilities = _effective_capabilities(process / "status")
    missing += [name for name, number in CAPABILITIES.items() if not capabilities >> number & 1]
    if "root" not in missing and (problems := CgroupHierarchies.detect(cgroup_root).problems()):
        missing.append(f"writable cgroups ({'; '.join(problems)})")
    if not missing and not _may_unshare():
        missing.append("permission to create namespaces")
    return missing


def _effective_capabilities(status: Path) -> int:
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _may_unshare() -> bool:
    """Return True if a namespace can be created: seccomp or a security module may forbid it."""
    return (
        subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode
        == 0
    )
