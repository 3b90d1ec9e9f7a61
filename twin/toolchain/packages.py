"""The Debian packages the twin needs, and the file that proves each is there.

Files are looked for rather than dpkg asked: a containerd from elsewhere is as good, and looking
costs nothing.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from everstep.errors import EverstepError
from everstep.progress import Progress
from twin.paths import cache_directory
from twin.toolchain import cache

SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHOWN_LINES = 12


@dataclass(frozen=True)
class Package:
    """A Debian package.

    Attributes:
        name: what apt calls it.
        proofs: programs (looked for on PATH) or absolute paths; all must be there.
        purpose: why the twin needs it, for the error that names it.
    """

    name: str
    proofs: tuple[str, ...]
    purpose: str


PACKAGES = (
    Package(
        "containerd", ("containerd", "ctr", "containerd-shim-runc-v2"), "runs a node's containers"
    ),
    Package("runc", ("runc",), "starts a container"),
    Package(
        "containernetworking-plugins",
        ("/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/portmap"),
        "gives pods their network",
    ),
    Package("iptables", ("iptables", "iptables-restore"), "carries the rules of services"),
    Package("nftables", ("nft",), "carries the rules of services"),
    Package("ipset", ("ipset",), "is used by kube-proxy"),
    Package("conntrack", ("conntrack",), "is used by kube-proxy"),
    Package("ethtool", ("ethtool",), "is used by the kubelet"),
    Package("socat", ("socat",), "forwards ports into pods"),
    Package("iproute2", ("ip",), "makes network namespaces"),
    Package("util-linux", ("unshare", "nsenter", "setpriv"), "makes the other namespaces"),
    Package("mount", ("mount", "umount"), "makes file systems visible to a node"),
    Package("mmdebstrap", ("mmdebstrap",), "makes the base images"),
    Package(
        "debian-archive-keyring",
        ("/usr/share/keyrings/debian-archive-keyring.gpg",),
        "checks what the base images are made of",
    ),
    Package("buildah", ("buildah",), "builds images without an engine"),
)


def ensure_packages(progress: Progress) -> None:
    """Make sure the Debian packages are there; install what is missing where root and apt allow it.

    Raises:
        EverstepError: something is missing and cannot be installed from here; it says what and how.
    """
    if not missing():
        return
    with cache.locked(cache_directory() / "packages.lock", progress, "installing Debian packages"):
        lacking = missing()
        if not lacking:  # whoever we waited for installed them
            return
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise cannot_install(lacking)
        names = [package.name for package in lacking]
        with progress.step(f"Installing Debian packages: {' '.join(names)}"):
            _install(names)
    if still := missing():
        raise cannot_install(still)


def missing(is_there: Callable[[str], bool] | None = None) -> list[Package]:
    """Return the packages of which a proof is not there."""
    there = is_there or _is_there
    return [package for package in PACKAGES if not all(there(proof) for proof in package.proofs)]


def cannot_install(packages: Iterable[Package]) -> EverstepError:
    """Return the error that names packages, what each is for and the line that installs them."""
    lacking = list(packages)
    reasons = "\n".join(f"  {package.name}: {package.purpose}" for package in lacking)
    names = " ".join(package.name for package in lacking)
    return EverstepError(
        f"These Debian packages are needed and not there:\n{reasons}",
        f"Install them as root: apt-get install --no-install-recommends {names}",
    )


def _is_there(proof: str) -> bool:
    if proof.startswith("/"):
        return Path(proof).exists()
    # Not every user's PATH holds the sbin folders, where half of these live.
    return shutil.which(proof, path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}") is not None


def _install(names: list[str]) -> None:
    """Install packages; refresh the package lists only if it does not work without."""
    install = [
        "apt-get",
        "install",
        "--yes",
        "--no-install-recommends",
        "-o",
        "DPkg::Lock::Timeout=120",
    ]
    if _apt([*install, *names]).returncode == 0:
        return
    refreshed = _apt(["apt-get", "update"])
    installed = _apt([*install, *names])
    if installed.returncode:
        said = (refreshed.stderr if refreshed.returncode else "") + installed.stderr
        tail = "\n".join(f"  {line}" for line in said.strip().splitlines()[-SHOWN_LINES:])
        raise EverstepError(
            f"apt-get could not install {' '.join(names)}:\n{tail}",
            "Check the network and apt's sources, or install them by hand.",
        )


def _apt(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        arguments, env=quiet, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
