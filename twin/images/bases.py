"""The base images of a twin, made from Debian packages: they need no registry and no account.

In a cloud the same Dockerfiles stand on published images (a CUDA PyTorch, a slim Python). Here
Debian trixie gives the same Python and a PyTorch without CUDA, a fifth of the size, signed by keys
that Debian hosts have.
"""

import platform
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from everstep.errors import EverstepError
from everstep.progress import Progress, Step
from twin.images import confine, layout
from twin.toolchain import cache

SUITE = "trixie"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FORMAT = "1"  # raise it when the same packages should be made into a new base
SHOWN_LINES = 12

# Read by people, or by programs that compile against the libraries: nobody does so in a pod.
UNNEEDED = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/lib/python3/dist-packages/torch/bin/test_*",
    "/usr/lib/python3/dist-packages/torch/include/*",
)


@dataclass(frozen=True)
class Base:
    """A base image: its name and the Debian packages in it."""

    name: str
    packages: tuple[str, ...]

    @property
    def key(self) -> str:
        """What the base is made from. Not the packages' versions: an old base is a good base."""
        return cache.digest([FORMAT, SUITE, platform.machine(), *self.packages, *UNNEEDED])

    @property
    def reference(self) -> str:
        """What builders call it."""
        return f"localhost/everstep/base-{self.name}:{self.key}"


BASES = {
    base.name: base
    for base in (
        Base("python", ("python3", "python3-pip", "ca-certificates")),
        Base(
            "torch",
            (
                "python3",
                "python3-torch",
                "python3-torchvision",
                "python3-safetensors",
                "python3-numpy",
                "python3-pil",
                "python3-prometheus-client",
                "dataset-fashion-mnist",
            ),
        ),
    )
}


def ensure_base(base: Base, folder: Path, progress: Progress) -> Path:
    """Return the base as a layout folder below `folder`, made if it is not there yet.

    Raises:
        EverstepError: no root, no keyring, or the network, the disk or a package fails.
    """
    return cache.ensure(
        folder,
        f"base-{base.name}",
        base.key,
        progress,
        lambda staging: _make(base, staging, progress),
    )


def mirror_from(targets: str) -> str:
    """Pick the mirror of Debian's own archive from what `apt-get indextargets` printed, or "". Pure.

    Args:
        targets: lines of `ORIGIN|LABEL|REPO_URI`.
    """
    for line in targets.splitlines():
        origin, label, address = [*line.split("|"), "", ""][:3]
        if (origin, label) == ("Debian", "Debian") and address:
            return address.rstrip("/")
    return ""


def transport_options(dump: str) -> list[str]:
    """Pick from `apt-config dump` how this host reaches its mirror: proxy, clock. Pure."""
    return [
        line.rstrip(";")
        for line in dump.splitlines()
        if re.match(r"Acquire::(?:http|https|ftp|Check-|Retries|ForceIPv)", line)
        and not line.endswith(' "";')
    ]


def _make(base: Base, staging: Path, progress: Progress) -> None:
    if not KEYRING.exists():
        raise EverstepError(f"{KEYRING} is not there.", "Install debian-archive-keyring.")
    archive = staging / "layer.tar"
    with progress.step(f"Making the base image {base.name} from Debian {SUITE} packages") as step:
        arguments = _mmdebstrap(base.packages, archive)
        done = confine.run(arguments, _environment(staging), lambda line: _note(step, line))
        if done.code:
            raise explain(base.name, done.lines, staging.parent)
        layout.single_layer(staging / "oci", archive, base.reference, {"Cmd": ["python3"]})
        for rest in staging.iterdir():
            if rest.name != "oci":
                shutil.rmtree(rest, ignore_errors=True)


def _note(step: Step, line: str) -> None:
    if line.startswith("I: ") and "..." in line:
        step.note(line.removeprefix("I: ").rstrip("."))


def explain(name: str, lines: Iterable[str], folder: Path) -> EverstepError:
    """Turn what a failed mmdebstrap said into what a user can act on. Pure."""
    kept = [line for line in lines if line]
    text = "\n".join(kept)
    tail = "\n".join(f"  {line}" for line in kept[-SHOWN_LINES:])
    if re.search(r"no space left on device|not enough free space", text, re.IGNORECASE):
        return EverstepError(
            f"The disk ran full while making the base image {name} in {folder}.",
            "Free 4 GB there, or point XDG_CACHE_HOME to a folder on a larger disk.",
        )
    if re.search(r"Could not (?:resolve|connect)|Failed to fetch|Temporary failure", text):
        return EverstepError(
            f"The Debian packages of the base image {name} could not be downloaded:\n{tail}",
            "Check the network and apt's sources.",
        )
    if re.search(r"must be root|permission denied|operation not permitted", text, re.IGNORECASE):
        return EverstepError(f"mmdebstrap may not make {name}:\n{tail}", "Run it as root.")
    return EverstepError(f"mmdebstrap could not make the base image {name}:\n{tail}")


def _mmdebstrap(packages: Iterable[str], archive: Path) -> list[str]:
    options = transport_options(_output(["apt-config", "dump"]))
    targets = _output(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"])
    mirror = mirror_from(targets)  # passed on by name: the host's sources know only its own suite
    return [
        "mmdebstrap",
        "--variant=minbase",
        "--format=tar",
        f"--keyring={KEYRING}",
        f"--include={','.join(packages)}",
        *(f"--aptopt={option}" for option in options),
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in UNNEEDED),
        SUITE,
        str(archive),
        *([mirror] if mirror else []),  # without one mmdebstrap takes Debian's own
    ]


def _environment(staging: Path) -> dict[str, str]:
    """Keep mmdebstrap's working tree beside its result: /tmp may be small, and is not ours."""
    work = staging / "work"
    work.mkdir()
    work.chmod(0o755)
    return {"TMPDIR": str(work), "LC_ALL": "C.UTF-8", "SOURCE_DATE_EPOCH": "0"}


def _output(arguments: list[str]) -> str:
    try:
        return subprocess.run(arguments, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:  # no apt here: mmdebstrap says so better than we could
        return ""
