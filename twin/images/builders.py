"""Build a Dockerfile with docker, podman or buildah: whichever works here.

buildah comes last because an engine that answers already has its user's settings. It needs no
engine, no daemon and, with chroot isolation, no container runtime; its storage lies in our cache,
and it runs in a mount namespace of its own, so that the mounts it makes and the files it would keep
under /var/lib never reach the host.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from everstep.errors import EverstepError
from twin.images import confine, layout

ENGINE_SECONDS = 10.0  # an engine that takes longer to say its version will not be of use
SHOWN_LINES = 15
TRUST_ALL = (
    '{"default": [{"type": "insecureAcceptAnything"}]}'  # images are made here or named by the user
)
LIBRARY = Path("/var/lib/containers")


class Builder(Protocol):
    """Something that turns a Dockerfile into an OCI layout."""

    @property
    def name(self) -> str:
        """Its program."""

    def has(self, reference: str) -> bool:
        """Tell whether it holds an image."""

    def load(self, base: Path, reference: str) -> None:
        """Take over the only image of a layout folder, under this reference."""

    def build(self, job: "Job", into: Path) -> None:
        """Build an image and write it into a layout folder, which may hold blobs already."""


@dataclass(frozen=True)
class Job:
    """What is to be built: a folder laid out as build context, its Dockerfile, and the base."""

    context: Path
    dockerfile: str
    reference: str
    base: str | None = None


def choose(storage: Path) -> Builder:
    """Return the first builder that works here; `storage` is where buildah may keep its layers.

    Raises:
        EverstepError: none does.
    """
    for program in ("docker", "podman"):
        if _engine_answers(program):
            return Engine(program)
    if shutil.which("buildah") and os.geteuid() == 0:
        return Buildah(storage)
    raise EverstepError(
        "Images cannot be built here: no docker or podman engine answers, and buildah needs root.",
        "Start Docker or Podman, or run as root after: apt-get install buildah",
    )


@dataclass(frozen=True)
class Engine:
    """Docker or Podman."""

    name: str

    def has(self, reference: str) -> bool:
        """Tell whether the engine holds an image."""
        asked = subprocess.run(
            [self.name, "image", "inspect", reference], capture_output=True, check=False
        )
        return asked.returncode == 0

    def load(self, base: Path, reference: str) -> None:
        """Import the base's layer; both engines of every age can read a plain tar."""
        layer = max((base / "blobs" / "sha256").iterdir(), key=lambda blob: blob.stat().st_size)
        _run([self.name, "import", str(layer), reference], f"load the base {reference}")

    def build(self, job: Job, into: Path) -> None:
        """Build and save."""
        argument = [f"--build-arg=BASE_IMAGE={job.base}"] if job.base else []
        file = str(job.context / job.dockerfile)
        arguments = ["build", *argument, "--file", file, "--tag", job.reference, str(job.context)]
        _run([self.name, *arguments], f"build {job.reference}")
        archive = into.parent / "saved.tar"
        form = ["--format", "oci-archive"] if self.name == "podman" else []
        saved = [self.name, "save", *form, "--output", str(archive), job.reference]
        _run(saved, f"save {job.reference}")
        layout.extract(archive, into)
        archive.unlink()


@dataclass(frozen=True)
class Buildah:
    """buildah without an engine.

    Attributes:
        storage: its layers and settings.
    """

    storage: Path
    name: str = "buildah"

    def has(self, reference: str) -> bool:
        """Tell whether buildah's own storage holds an image."""
        asked = self._call(
            ["inspect", "--type", "image", "--format", "{{.FromImageID}}", reference]
        )
        return asked.code == 0

    def load(self, base: Path, reference: str) -> None:
        """Unpack the base into buildah's storage."""
        # buildah names an image after the path it pulls from, and `.cache` would be no name.
        place = f"oci:{LIBRARY / 'base'}:{layout.read(base)[0].reference}"
        self._need(["pull", *self._policy(), place], f"load the base {reference}", base)
        self._need(["tag", f"localhost{LIBRARY}/base", reference], f"name the base {reference}")

    def build(self, job: Job, into: Path) -> None:
        """Build, then write what the layout does not have yet."""
        argument = [f"--build-arg=BASE_IMAGE={job.base}"] if job.base else []
        self._need(
            [
                "build",
                *self._policy(),
                "--layers",  # what a Dockerfile copies first and changes least is not made again
                "--timestamp=0",  # equal contents, equal digest
                "--pull=missing",
                *argument,
                f"--file={job.context / job.dockerfile}",
                f"--tag={job.reference}",
                str(job.context),
            ],
            f"build {job.reference}",
        )
        target = f"oci:{into}:{job.reference}"
        quickly = [
            "--compression-format=gzip",
            "--compression-level=1",
        ]  # it never leaves this disk
        push = ["push", *self._policy(), *quickly, job.reference, target]
        self._need(push, f"save {job.reference}")
        self._call(["rmi", "--prune"])  # what the tag stood on before

    def _policy(self) -> list[str]:
        return [f"--signature-policy={self.storage / 'policy.json'}"]

    def _need(self, arguments: list[str], what: str, base: Path | None = None) -> None:
        done = self._call(arguments, base)
        if done.code:
            raise explain(self.name, what, done.output)

    def _call(self, arguments: list[str], base: Path | None = None) -> confine.Finished:
        """Run buildah with a scratch /var/lib/containers that ends with it; `base` is in it."""
        temporary = self.storage / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        (self.storage / "policy.json").write_text(TRUST_ALL)
        places = [f"--root={self.storage / 'layers'}", f"--runroot={self.storage / 'run'}"]
        command = ["buildah", *places, "--storage-driver=overlay", *arguments]
        bind = f'&& mkdir {LIBRARY}/base && mount --bind "$0" {LIBRARY}/base' if base else ""
        shell = f'mount -t tmpfs everstep {LIBRARY} {bind} && exec "$@"'
        with _mount_point(LIBRARY):
            return confine.run(
                ["sh", "-c", shell, str(base), *command],
                {"BUILDAH_ISOLATION": "chroot", "TMPDIR": str(temporary)},
            )


@contextmanager
def _mount_point(folder: Path) -> Iterator[None]:
    """Have a folder to mount on; if we made it, remove it again, unless another run is using it."""
    made = not folder.exists()
    folder.mkdir(exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        if made:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder.rmdir()
        os.close(lock)


def explain(program: str, what: str, output: str) -> EverstepError:
    """Turn what a failed build printed into what a user can act on. Pure."""
    tail = "\n".join(f"  {line}" for line in output.strip().splitlines()[-SHOWN_LINES:])
    said = f"{program} could not {what}:\n{tail}"
    if re.search(r"no space left on device|disk quota exceeded", output, re.IGNORECASE):
        return EverstepError(
            f"The disk ran full: {said}", "Free 4 GB where the cache of Everstep lies."
        )
    if re.search(r"overlay.*(?:not supported|invalid argument)", output, re.IGNORECASE):
        return EverstepError(
            said,
            "The cache must lie on a disk that overlay works on (ext4, xfs): set XDG_CACHE_HOME.",
        )
    return EverstepError(said)


def _engine_answers(program: str) -> bool:
    """Tell whether an engine stands behind the program: the docker client alone builds nothing."""
    if not shutil.which(program):
        return False
    with suppress(subprocess.TimeoutExpired):
        asked = subprocess.run(
            [program, "info"], capture_output=True, timeout=ENGINE_SECONDS, check=False
        )
        # `docker info` without an engine exits with 0 in some releases, but says so.
        return asked.returncode == 0 and b"Cannot connect" not in asked.stderr + asked.stdout
    return False


def _run(arguments: list[str], what: str) -> None:
    done = subprocess.run(
        arguments,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise explain(arguments[0], what, done.stdout + done.stderr)
