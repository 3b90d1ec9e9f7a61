"""Base images built from Debian packages: they need no registry and no account.

In a cloud the same Dockerfiles use published base images. Debian's packages are signed by keys that Debian hosts
have, and a PyTorch without CUDA is a fifth of the size.
"""

import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.images import confine, oci_layout
from cloudtwin.paths import CACHE_VARIABLE
from cloudtwin.progress import Progress, Step
from cloudtwin.toolchain import cache

SUITE = "trixie"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FORMAT = "1"  # raise it to rebuild the bases of unchanged packages
TAIL_LINES = 12
EXCLUDED_PATHS = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
)  # not needed in a pod


@dataclass(frozen=True)
class Base:
    """A base image.

    Attributes:
        name: its name.
        packages: the Debian packages in it; they must include `python3`.
        excluded: patterns of their paths that are left out, in addition to EXCLUDED_PATHS.
    """

    name: str
    packages: tuple[str, ...]
    excluded: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The cache key, without versions of packages: newer ones need no new base image."""
        parts = (FORMAT, SUITE, platform.machine(), *self.packages, *EXCLUDED_PATHS, *self.excluded)
        return cache.digest(parts)

    @property
    def reference(self) -> str:
        """The name by which builders use the image."""
        return f"localhost/cloudtwin/base-{self.name}:{self.key}"


def ensure_base(base: Base, folder: Path, progress: Progress) -> Path:
    """Return the base as a layout folder below `folder`; build it if it does not exist.

    Raises:
        TwinError: root or the keyring is missing, or the network, the disk or a package fails.
    """
    return cache.ensure(
        folder,
        f"base-{base.name}",
        base.key,
        progress,
        lambda staging: _make(base, staging, progress),
    )


def mirror_from(targets: str) -> str:
    """Return the mirror of Debian's own archive in the output of `apt-get indextargets`, or "".

    Args:
        targets: lines of `ORIGIN|LABEL|REPO_URI`.
    """
    for line in targets.splitlines():
        origin, label, address = [*line.split("|"), "", ""][:3]
        if (origin, label) == ("Debian", "Debian") and address:
            return address.rstrip("/")
    return ""


def transport_options(dump: str) -> list[str]:
    """Return the options in the output of `apt-config dump` that are needed to reach the mirror, such as the proxy."""
    return [
        line.rstrip(";")
        for line in dump.splitlines()
        if re.match(r"Acquire::(?:http|https|ftp|Check-|Retries|ForceIPv)", line)
        and not line.endswith(' "";')
    ]


def _make(base: Base, staging: Path, progress: Progress) -> None:
    if not KEYRING.exists():
        raise TwinError(f"{KEYRING} does not exist.", "Install debian-archive-keyring.")
    archive = staging / "layer.tar"
    with progress.step(f"Building the base image {base.name} from Debian {SUITE} packages") as step:
        arguments = _mmdebstrap(base, archive)
        result = confine.run(arguments, _environment(staging), lambda line: _note(step, line))
        if result.code:
            raise explain(base.name, result.lines, staging.parent)
        oci_layout.single_layer(staging / "oci", archive, base.reference, {"Cmd": ["python3"]})
        for leftover in staging.iterdir():
            if leftover.name != "oci":
                shutil.rmtree(leftover, ignore_errors=True)


def _note(step: Step, line: str) -> None:
    if line.startswith("I: ") and "..." in line:
        step.note(line.removeprefix("I: ").rstrip("."))


def explain(name: str, lines: Iterable[str], folder: Path) -> TwinError:
    """Return the error that explains the output of a failed mmdebstrap."""
    nonempty = [line for line in lines if line]
    text = "\n".join(nonempty)
    tail = "\n".join(f"  {line}" for line in nonempty[-TAIL_LINES:])
    if re.search(r"no space left on device|not enough free space", text, re.IGNORECASE):
        return TwinError(
            f"The disk is full: cannot build the base image {name} in {folder}.",
            f"Free 4 GB there, or point {CACHE_VARIABLE} to a folder on a larger disk.",
        )
    if re.search(r"Could not (?:resolve|connect)|Failed to fetch|Temporary failure", text):
        return TwinError(
            f"The Debian packages of the base image {name} could not be downloaded:\n{tail}",
            "Check the network and apt's sources.",
        )
    if re.search(r"must be root|permission denied|operation not permitted", text, re.IGNORECASE):
        return TwinError(f"mmdebstrap is not permitted to build {name}:\n{tail}", "Run it as root.")
    return TwinError(f"mmdebstrap could not build the base image {name}:\n{tail}")


def _mmdebstrap(base: Base, archive: Path) -> list[str]:
    options = transport_options(_output(["apt-config", "dump"]))
    targets = _output(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"])
    # Passed explicitly: the host's sources list only the host's own suite.
    mirror = mirror_from(targets)
    return [
        "mmdebstrap",
        "--variant=minbase",
        "--format=tar",
        f"--keyring={KEYRING}",
        f"--include={','.join(base.packages)}",
        *(f"--aptopt={option}" for option in options),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in (*EXCLUDED_PATHS, *base.excluded)),
        SUITE,
        str(archive),
        *([mirror] if mirror else []),  # the default is Debian's own
    ]


def _environment(staging: Path) -> dict[str, str]:
    """Return an environment with temporary files next to mmdebstrap's result: /tmp may be small."""
    work = staging / "work"
    work.mkdir()
    work.chmod(0o755)
    return {"TMPDIR": str(work), "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "0"}


def _output(arguments: list[str]) -> str:
    try:
        return subprocess.run(arguments, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:  # without apt; mmdebstrap has a better error message
        return ""
