"""Builds of Dockerfiles with buildah.

buildah needs no engine, no daemon and, with chroot isolation, no container runtime. Its storage is in the
cache, and it runs in its own mount namespace, so that its mounts and its files under /var/lib never reach
the host.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.images import confine, oci_layout
from cloudtwin.paths import CACHE_VARIABLE

TAIL_LINES = 15
# Signatures are not checked: images are built here or chosen by the user.
TRUST_ALL = '{"default": [{"type": "insecureAcceptAnything"}]}'
LIBRARY = Path("/var/lib/containers")
# Images do not leave this disk: speed matters more than size.
FAST_COMPRESSION = ("--compression-format=gzip", "--compression-level=1")


@dataclass(frozen=True)
class Buildah:
    """buildah with its own storage.

    Attributes:
        storage: the folder of its layers and settings.
    """

    storage: Path

    def require(self) -> None:
        """Check that images can be built here.

        Raises:
            TwinError: buildah or root is missing.
        """
        if not shutil.which("buildah") or os.geteuid() != 0:
            raise TwinError(
                "Images cannot be built here: buildah is not installed, or this process is not running as root.",
                "Run as root after: apt-get install buildah",
            )

    def has(self, reference: str) -> bool:
        """Return True if the storage holds an image."""
        arguments = ["inspect", "--type", "image", "--format", "{{.FromImageID}}", reference]
        return self._call(arguments).code == 0

    def load(self, base: Path, reference: str) -> None:
        """Import the only image of a layout folder under this reference.

        Raises:
            TwinError: buildah fails.
        """
        # buildah derives the image's name from the path, and a path with `.cache` gives an invalid name.
        source = f"oci:{LIBRARY / 'base'}:{oci_layout.read(base)[0].reference}"
        self._run(["pull", *self._policy(), source], f"load the base {reference}", base)
        self._run(["tag", f"localhost{LIBRARY}/base", reference], f"name the base {reference}")

    def build(
        self, context: Path, dockerfile: str, reference: str, base: str | None, layout: Path
    ) -> None:
        """Build an image and write it into a layout folder, which may hold blobs already.

        Args:
            context: the build context.
            dockerfile: path of the Dockerfile below the context.
            reference: the image's name.
            base: the value of the build argument BASE_IMAGE; None for no argument.
            layout: the layout folder.

        Raises:
            TwinError: the build fails.
        """
        arguments = [
            "build",
            *self._policy(),
            "--layers",  # reuse the layers of unchanged instructions
            "--timestamp=0",  # equal contents give equal digests
            "--pull=missing",
            *([f"--build-arg=BASE_IMAGE={base}"] if base else []),
            f"--file={context / dockerfile}",
            f"--tag={reference}",
            str(context),
        ]
        self._run(arguments, f"build {reference}")
        push = ["push", *self._policy(), *FAST_COMPRESSION, reference, f"oci:{layout}:{reference}"]
        self._run(push, f"save {reference}")
        self._call(["rmi", "--prune"])  # the image that had the tag before

    def _policy(self) -> list[str]:
        return [f"--signature-policy={self.storage / 'policy.json'}"]

    def _run(self, arguments: list[str], action: str, base: Path | None = None) -> None:
        result = self._call(arguments, base)
        if result.code:
            raise explain(action, result.output)

    def _call(self, arguments: list[str], base: Path | None = None) -> confine.ProgramResult:
        """Run buildah with a temporary /var/lib/containers that contains `base`."""
        temporary = self.storage / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        (self.storage / "policy.json").write_text(TRUST_ALL)
        folders = [f"--root={self.storage / 'layers'}", f"--runroot={self.storage / 'run'}"]
        command = ["buildah", *folders, "--storage-driver=overlay", *arguments]
        bind = f'&& mkdir {LIBRARY}/base && mount --bind "$0" {LIBRARY}/base' if base else ""
        shell = f'mount -t tmpfs cloudtwin {LIBRARY} {bind} && exec "$@"'
        with _mount_point(LIBRARY):
            return confine.run(
                ["sh", "-c", shell, str(base), *command],
                {"BUILDAH_ISOLATION": "chroot", "TMPDIR": str(temporary)},
            )


@contextmanager
def _mount_point(folder: Path) -> Iterator[None]:
    """Provide a folder to mount on; remove it afterwards if it was created here and no other process uses it."""
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        if is_new:
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                folder.rmdir()
        os.close(lock)


def explain(action: str, output: str) -> TwinError:
    """Return the error that explains the output of a failed build."""
    tail = "\n".join(f"  {line}" for line in output.strip().splitlines()[-TAIL_LINES:])
    failure = f"buildah could not {action}:\n{tail}"
    if re.search(r"no space left on device|disk quota exceeded", output, re.IGNORECASE):
        return TwinError(f"The disk is full: {failure}", "Free 4 GB on the disk of the cache.")
    if re.search(r"overlay.*(?:not supported|invalid argument)", output, re.IGNORECASE):
        return TwinError(
            failure,
            f"The cache must be on a disk that supports overlay (ext4, xfs): set {CACHE_VARIABLE}.",
        )
    return TwinError(failure)
