"""The Debian packages that the twin needs, and the files that show that each is installed.

Files are checked instead of dpkg's database: a containerd from another source works as well, and the
check costs nothing.
"""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.paths import cache_directory
from cloudtwin.progress import Progress
from cloudtwin.toolchain import cache

SYSTEM_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TAIL_LINES = 12


@dataclass(frozen=True)
class Package:
    """A Debian package.

    Attributes:
        name: the name of the package in apt.
        required_files: programs (on PATH) or absolute paths; the package is installed if all exist.
        purpose: the use of the package in the twin, for the error message.
    """

    name: str
    required_files: tuple[str, ...]
    purpose: str


PACKAGES = (
    Package(
        "containerd", ("containerd", "ctr", "containerd-shim-runc-v2"), "runs a node's containers"
    ),
    Package("runc", ("runc",), "starts a container"),
    Package(
        "containernetworking-plugins",
        ("/usr/lib/cni/bridge", "/usr/lib/cni/host-local", "/usr/lib/cni/portmap"),
        "connects pods to the network",
    ),
    Package("iptables", ("iptables", "iptables-restore"), "applies the rules of services"),
    Package("nftables", ("nft",), "applies the rules of services"),
    Package("ipset", ("ipset",), "is used by kube-proxy"),
    Package("conntrack", ("conntrack",), "is used by kube-proxy"),
    Package("ethtool", ("ethtool",), "is used by the kubelet"),
    Package("socat", ("socat",), "forwards ports into pods"),
    Package("iproute2", ("ip",), "sets up network links and routes"),
    Package("util-linux", ("unshare", "nsenter", "setpriv"), "creates and enters namespaces"),
    Package("mount", ("mount", "umount"), "mounts the file systems of a node"),
    Package("mmdebstrap", ("mmdebstrap",), "builds the base images"),
    Package(
        "debian-archive-keyring",
        ("/usr/share/keyrings/debian-archive-keyring.gpg",),
        "verifies the packages of the base images",
    ),
    Package("buildah", ("buildah",), "builds images without an engine"),
)


def ensure_packages(progress: Progress) -> None:
    """Install the missing Debian packages, if root and apt are available.

    Raises:
        TwinError: a package is missing and cannot be installed; the message names it and the command.
    """
    if not missing():
        return
    with cache.locked(cache_directory() / "packages.lock", progress, "installing Debian packages"):
        missing_packages = missing()
        if not missing_packages:  # the run that had the lock installed them
            return
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise not_installed_error(missing_packages)
        names = [package.name for package in missing_packages]
        with progress.step(f"Installing Debian packages: {' '.join(names)}"):
            _install(names)
    if still_missing := missing():
        raise not_installed_error(still_missing)


def missing(exists: Callable[[str], bool] | None = None) -> list[Package]:
    """Return the packages with a missing file or program."""
    check = exists or _is_present
    return [
        package for package in PACKAGES if not all(check(file) for file in package.required_files)
    ]


def not_installed_error(packages: Iterable[Package]) -> TwinError:
    """Return the error that names the packages, their purposes and the install command."""
    package_list = list(packages)
    reasons = "\n".join(f"  {package.name}: {package.purpose}" for package in package_list)
    names = " ".join(package.name for package in package_list)
    return TwinError(
        f"These Debian packages are required and not installed:\n{reasons}",
        f"Install them as root: apt-get install --no-install-recommends {names}",
    )


def _is_present(file: str) -> bool:
    if file.startswith("/"):
        return Path(file).exists()
    # The PATH of some users lacks the sbin folders, which contain half of these programs.
    return shutil.which(file, path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}") is not None


def _install(names: list[str]) -> None:
    """Install packages; refresh the package lists only after a failed attempt."""
    command = [
        "apt-get",
        "install",
        "--yes",
        "--no-install-recommends",
        "-o",
        "DPkg::Lock::Timeout=120",
    ]
    if _apt([*command, *names]).returncode == 0:
        return
    update_result = _apt(["apt-get", "update"])
    install_result = _apt([*command, *names])
    if install_result.returncode:
        output = (update_result.stderr if update_result.returncode else "") + install_result.stderr
        tail = "\n".join(f"  {line}" for line in output.strip().splitlines()[-TAIL_LINES:])
        raise TwinError(
            f"apt-get could not install {' '.join(names)}:\n{tail}",
            "Check the network and apt's sources, or install them by hand.",
        )


def _apt(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        arguments,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
