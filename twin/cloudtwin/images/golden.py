"""A containerd root that holds every image, filled once and copied to each machine by hard links.

Importing and unpacking a gigabyte takes 15 seconds for each machine. containerd never changes the files of an
image once they are written, so machines can share them; only its two small databases are copied. The root is
filled by a private containerd in a mount namespace with its own /run, so that it cannot interfere with a
containerd of the host.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.images import oci_layout
from cloudtwin.images.confine import KILLED_WITH_PARENT, OWN_MOUNTS

KUBELET_NAMESPACE = "k8s.io"  # containerd namespace of the kubelet's images
SOCKET = "/run/containerd.sock"
LAST = "localhost/cloudtwin/last:local"  # removing it starts the garbage collector
CONTAINERD_START_SECONDS = 90.0  # limit on a busy host
STOP_SECONDS = 20.0
TAIL_LINES = 12
CONTENT = "io.containerd.content.v1.content/blobs/sha256"
DISABLED_PLUGINS = (
    "io.containerd.grpc.v1.cri",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.native",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.opt",  # would create /opt/containerd on the host
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
)


@dataclass(frozen=True)
class ImportSource:
    """A layout to import, folder or tar; under its own names, or under `reference`."""

    path: Path
    reference: str | None = None


def fill(root: Path, sources: Sequence[ImportSource]) -> tuple[str, ...]:
    """Fill a containerd root with exactly the images of `sources`; return their references.

    The root may be empty or filled before: content that it has is not imported again.

    Raises:
        TwinError: containerd does not start or end, or does not import an image.
    """
    references = [
        source.reference or image.reference
        for source in sources
        for image in oci_layout.read(source.path)
    ]
    root.mkdir(parents=True, exist_ok=True)
    with _containerd(root) as process:
        for source in sources:
            _import(process, source)
        imported_references = _ctr(process, "images", "ls", "--quiet").split()
        _collect(process, references[0], sorted(set(imported_references) - set(references)))
        if missing := sorted(set(references) - set(imported_references)):
            raise TwinError(f"containerd imported all images but {', '.join(missing)}.")
    return tuple(references)


def copy(root: Path, destination: Path) -> None:
    """Copy a containerd root that no containerd uses.

    Content is hard-linked, databases are copied. On another file system everything is copied.

    Raises:
        TwinError: the copy fails, for example because the disk is full.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    same_disk = root.stat().st_dev == destination.parent.stat().st_dev
    link_option = "--link" if same_disk else "--reflink=auto"
    # cp keeps owners, modes and the extended attributes that overlay needs.
    result = subprocess.run(
        ["cp", "--archive", link_option, "--no-target-directory", str(root), str(destination)],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        shutil.rmtree(destination, ignore_errors=True)
        raise TwinError(
            f"The images could not be copied to {destination}: {result.stderr.strip()[-200:]}",
            "Free some space there.",
        )
    for database in root.glob("*/*.db"):
        target = destination / database.relative_to(root)
        temporary = target.with_suffix(".new")
        shutil.copy2(database, temporary)
        temporary.replace(target)


def share_content(root: Path, folder: Path) -> None:
    """Replace a layout folder's blobs with hard links to a containerd root's blobs, to save space."""
    for blob in (folder / "blobs" / "sha256").iterdir():
        content = root / CONTENT / blob.name
        if content.exists() and not content.samefile(blob):
            temporary = blob.with_name(f".{blob.name}")
            with suppress(OSError):  # another file system: nothing to share
                os.link(content, temporary)
                temporary.replace(blob)


def _collect(
    process: subprocess.Popen[bytes], retained_reference: str, surplus_references: list[str]
) -> None:
    """Remove images, and content that no image refers to.

    The collector runs only here: while an image is being imported under an existing name,
    no image refers to the layers that the old image and the new image share.
    """
    _ctr(process, "images", "tag", "--force", retained_reference, LAST)
    _ctr(process, "images", "rm", "--sync", *surplus_references, LAST)


def _import(process: subprocess.Popen[bytes], source: ImportSource) -> None:
    """Stream an image into containerd, without the blobs that containerd has."""
    digests = _ctr(process, "content", "ls", "--quiet").split()
    blob_names = {digest.removeprefix("sha256:") for digest in digests}
    arguments = _ctr_command(process, "images", "import", "-")
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as ctr:
        if ctr.stdin is None or ctr.stderr is None:
            raise AssertionError("Popen was called with pipes")
        with suppress(BrokenPipeError):  # ctr has ended; its message is read below
            oci_layout.write_archive(source.path, source.reference, ctr.stdin, blob_names)
        with suppress(BrokenPipeError):  # closing flushes the rest, which also fails
            ctr.stdin.close()
        message = ctr.stderr.read().decode(errors="replace")
    if ctr.returncode:
        raise _containerd_error(f"containerd refuses {source.path}", message)


def _ctr(process: subprocess.Popen[bytes], *arguments: str) -> str:
    result = subprocess.run(
        _ctr_command(process, *arguments), capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise _containerd_error(f"ctr {' '.join(arguments[:2])} failed", result.stderr)
    return result.stdout


def _ctr_command(process: subprocess.Popen[bytes], *arguments: str) -> list[str]:
    """Return a ctr command that runs in containerd's mount namespace, where its socket is."""
    enter = ["nsenter", "--mount", f"--target={process.pid}"]
    return [*enter, "ctr", f"--address={SOCKET}", f"--namespace={KUBELET_NAMESPACE}", *arguments]


@contextmanager
def _containerd(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a containerd on a root; it ends with the block, or when this process is killed.

    Raises:
        TwinError: containerd does not start, or has to be killed at the end, so that the root may be incomplete.
    """
    config = root.with_name("containerd.toml")
    log = root.with_name("containerd.log")
    disabled = ", ".join(f'"{plugin}"' for plugin in DISABLED_PLUGINS)
    config.write_text(
        f'version = 2\nroot = "{root}"\nstate = "/run/containerd"\noom_score = 0\n'
        f'disabled_plugins = [{disabled}]\n[grpc]\naddress = "{SOCKET}"\n'
        '[plugins."io.containerd.gc.v1.scheduler"]\n'
        'startup_delay = "24h"\nmutation_threshold = 0\ndeletion_threshold = 0\n'
    )
    shell = 'mount -t tmpfs cloudtwin /run && exec containerd --config "$0"'
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*KILLED_WITH_PARENT, *OWN_MOUNTS, "sh", "-c", shell, str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        _wait(process, log)
        yield process
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            problem = f"containerd did not end within {STOP_SECONDS:g} s"
            raise _containerd_error(problem, log.read_text(errors="replace")) from None
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        config.unlink(missing_ok=True)
        log.unlink(missing_ok=True)


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + CONTAINERD_START_SECONDS
    socket = Path(f"/proc/{process.pid}/root{SOCKET}")  # ctr waits 10 s for a missing socket
    while time.monotonic() < deadline and process.poll() is None:
        if socket.exists():
            _ctr(process, "version")
            return
        time.sleep(0.02)
    raise _containerd_error("containerd does not start", log.read_text(errors="replace"))


def _containerd_error(problem: str, output: str) -> TwinError:
    tail = "\n".join(f"  {line}" for line in output.strip().splitlines()[-TAIL_LINES:])
    fix = "Free some disk space." if "no space left" in output else ""
    return TwinError(f"{problem}:\n{tail}", fix)
