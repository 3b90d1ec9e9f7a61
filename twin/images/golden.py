"""A containerd root with every image in it, made once and copied to each node by hard links.

Importing and unpacking a gigabyte takes a quarter of a minute; a node that had to do so would be as
slow as a machine that pulls. What containerd keeps of an image never changes once it is written, so
nodes may share it; only its two small databases are copied. The root is filled by a containerd of
our own, in a mount namespace whose /run it has for itself: nothing of it can meet a containerd of
the host.
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

from everstep.errors import EverstepError
from twin.images import layout
from twin.images.confine import DIES_WITH_US, OWN_MOUNTS

NAMESPACE = "k8s.io"  # where the kubelet's images are
SOCKET = "/run/containerd.sock"
LAST = "localhost/everstep/last-to-go:local"  # whose removal starts the garbage collector
START_SECONDS = 30.0
STOP_SECONDS = 20.0
SHOWN_LINES = 12
CONTENT = "io.containerd.content.v1.content/blobs/sha256"
DISABLED = (
    "io.containerd.grpc.v1.cri",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.native",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.internal.v1.opt",  # would make /opt/containerd on the host
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
)


@dataclass(frozen=True)
class Source:
    """A layout, folder or tar, to be imported; under its own names, or the one given."""

    layout: Path
    reference: str | None = None


def fill(root: Path, sources: Sequence[Source]) -> tuple[str, ...]:
    """Make a containerd root hold the images of `sources` and no others; return their references.

    The root may be empty or one that was filled before: what it has already is not imported again.

    Raises:
        EverstepError: containerd does not start or refuses an image.
    """
    wanted = [
        source.reference or image.reference
        for source in sources
        for image in layout.read(source.layout)
    ]
    root.mkdir(parents=True, exist_ok=True)
    with _containerd(root) as process:
        for source in sources:
            _import(process, source)
        present = _ctr(process, "images", "ls", "--quiet").split()
        _collect(process, wanted[0], sorted(set(present) - set(wanted)))
        if lacking := sorted(set(wanted) - set(present)):
            raise EverstepError(f"containerd imported all images but {', '.join(lacking)}.")
    return tuple(wanted)


def copy(root: Path, destination: Path) -> None:
    """Copy a containerd root that nothing runs on.

    What never changes is hard-linked, databases are copied. On another file system, where links
    cannot be made, everything is copied.

    Raises:
        EverstepError: the copy fails, for want of space for instance.
    """
    destination.parent.mkdir(parents=True, exist_ok=True)
    same_disk = root.stat().st_dev == destination.parent.stat().st_dev
    how = "--link" if same_disk else "--reflink=auto"
    # cp and no walk of our own: it keeps owners, modes and the attributes overlay lives by.
    done = subprocess.run(
        ["cp", "--archive", how, "--no-target-directory", str(root), str(destination)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        shutil.rmtree(destination, ignore_errors=True)
        raise EverstepError(
            f"The images could not be copied to {destination}: {done.stderr.strip()[-200:]}",
            "Free some space there.",
        )
    for database in root.glob("*/*.db"):
        private = destination / database.relative_to(root)
        aside = private.with_suffix(".new")
        shutil.copy2(database, aside)
        aside.replace(private)


def share_content(root: Path, folder: Path) -> None:
    """Let a layout folder's blobs be those of a containerd root: equal bytes, on the disk once."""
    for blob in (folder / "blobs" / "sha256").iterdir():
        ours = root / CONTENT / blob.name
        if ours.exists() and not ours.samefile(blob):
            aside = blob.with_name(f".{blob.name}")
            with suppress(OSError):  # another file system: each keeps its own
                os.link(ours, aside)
                aside.replace(blob)


def _collect(process: subprocess.Popen[bytes], kept: str, surplus: list[str]) -> None:
    """Remove images and all that no image needs any more.

    The collector runs here and at no other time: while an image is being imported under a name that
    is taken, nothing refers to the layers that the old one and the new one share.
    """
    _ctr(process, "images", "tag", "--force", kept, LAST)
    _ctr(process, "images", "rm", "--sync", *surplus, LAST)


def _import(process: subprocess.Popen[bytes], source: Source) -> None:
    """Stream an image into containerd without the blobs it has."""
    present = _ctr(process, "content", "ls", "--quiet").split()
    known = {digest.removeprefix("sha256:") for digest in present}
    arguments = _inside(process, "images", "import", "-")
    with subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as ctr:
        if ctr.stdin is None or ctr.stderr is None:
            raise AssertionError("pipes were asked for")
        with suppress(BrokenPipeError):  # ctr has ended, and says why
            layout.write_archive(source.layout, source.reference, ctr.stdin, known)
            ctr.stdin.close()
        said = ctr.stderr.read().decode(errors="replace")
    if ctr.returncode:
        raise _failed(f"containerd refuses {source.layout}", said)


def _ctr(process: subprocess.Popen[bytes], *arguments: str) -> str:
    done = subprocess.run(_inside(process, *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise _failed(f"ctr {' '.join(arguments[:2])} fails", done.stderr)
    return done.stdout


def _inside(process: subprocess.Popen[bytes], *arguments: str) -> list[str]:
    """Return a ctr command that runs where containerd's socket can be seen."""
    enter = ["nsenter", "--mount", f"--target={process.pid}"]
    return [*enter, "ctr", f"--address={SOCKET}", f"--namespace={NAMESPACE}", *arguments]


@contextmanager
def _containerd(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a containerd on a root; it ends with the block, and with us if we are killed."""
    config = root.with_name("containerd.toml")
    log = root.with_name("containerd.log")
    disabled = ", ".join(f'"{plugin}"' for plugin in DISABLED)
    config.write_text(
        f'version = 2\nroot = "{root}"\nstate = "/run/containerd"\noom_score = 0\n'
        f'disabled_plugins = [{disabled}]\n[grpc]\naddress = "{SOCKET}"\n'
        '[plugins."io.containerd.gc.v1.scheduler"]\n'
        'startup_delay = "24h"\nmutation_threshold = 0\ndeletion_threshold = 0\n'
    )
    shell = 'mount -t tmpfs everstep /run && exec containerd --config "$0"'
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*DIES_WITH_US, *OWN_MOUNTS, "sh", "-c", shell, str(config)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        _wait(process, log)
        yield process
        process.terminate()
        process.wait(STOP_SECONDS)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        config.unlink(missing_ok=True)
        log.unlink(missing_ok=True)


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    socket = Path(f"/proc/{process.pid}/root{SOCKET}")  # ctr waits 10 s for one that is not there
    while time.monotonic() < deadline and process.poll() is None:
        if socket.exists():
            _ctr(process, "version")
            return
        time.sleep(0.02)
    raise _failed("containerd does not start", log.read_text(errors="replace"))


def _failed(what: str, said: str) -> EverstepError:
    tail = "\n".join(f"  {line}" for line in said.strip().splitlines()[-SHOWN_LINES:])
    remedy = "Free some space there." if "no space left" in said else ""
    return EverstepError(f"{what}:\n{tail}", remedy)
