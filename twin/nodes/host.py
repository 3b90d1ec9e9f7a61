"""What a host must offer for a twin to stand on it."""

import os
import subprocess
from pathlib import Path

from everstep.errors import EverstepError

NAMESPACES = ("mnt", "net", "pid", "ipc", "uts", "cgroup")
# Numbers of the kernel's capabilities.
CAPABILITIES = {"CAP_SYS_ADMIN": 21, "CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_KILL": 5}
OWN_CLUSTER = (
    "Or use a Kubernetes cluster of your own: name its kubeconfig as `everstep:cluster: {kubeconfig: PATH}`"
    " in the stack file."
)


def require_abilities() -> None:
    """Check that machines can be started here.

    Raises:
        EverstepError: it names everything that is missing.
    """
    if lacking := missing_abilities():
        raise EverstepError(
            f"A twin cannot stand on this host; missing: {', '.join(lacking)}.",
            f"Run as root on Linux with namespaces and cgroups.\n{OWN_CLUSTER}",
        )


def missing_abilities(process: Path = Path("/proc/self")) -> list[str]:
    """Return what this process lacks, in words."""
    lacking = [] if os.geteuid() == 0 else ["root"]
    lacking += [f"{n} namespaces" for n in NAMESPACES if not (process / "ns" / n).exists()]
    held = _effective_capabilities(process / "status")
    lacking += [name for name, number in CAPABILITIES.items() if not held >> number & 1]
    if not lacking and not _may_unshare():
        lacking.append("permission to make namespaces")
    return lacking


def _effective_capabilities(status: Path) -> int:
    for line in status.read_text().splitlines() if status.exists() else ():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _may_unshare() -> bool:
    """Try it: seccomp or a security module may forbid what the capabilities allow."""
    return (
        subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode
        == 0
    )
