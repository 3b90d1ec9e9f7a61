"""Build the programs of one Go module, and explain failures."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.progress import Progress, Step
from cloudtwin.toolchain.binaries import Module

NOTE_SECONDS = 5.0  # period of progress notes: short enough to show activity, long enough for a log
MAX_LINES = 40
TAIL_LINES = 15
INSTALL_GO = "Install Go from https://go.dev/dl/ and put its bin folder on PATH."

NO_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
NO_NETWORK = re.compile(
    r"dial tcp|no such host|proxyconnect|i/o timeout|connection re(?:fused|set)"
    r"|TLS handshake|network is unreachable|module lookup disabled",
    re.IGNORECASE,
)
KILLED = re.compile(r"signal: killed|cannot allocate memory|out of memory", re.IGNORECASE)


@dataclass(frozen=True)
class Go:
    """The installed Go: path of its program, and version, such as `1.26.8`."""

    program: str
    version: str


def find_go() -> Go:
    """Find Go on PATH.

    Raises:
        TwinError: Go is not on PATH or cannot be run.
    """
    program = shutil.which("go")
    if program is None:
        raise TwinError(
            "Go is needed to build the programs of the twin and is not on PATH.", INSTALL_GO
        )
    result = subprocess.run([program, "version"], capture_output=True, text=True, check=False)
    match = re.search(r"go(\d+(?:\.\d+)+\S*)", result.stdout)
    if result.returncode or not match:
        raise TwinError(f"`{program} version` failed: {result.stderr.strip()}", INSTALL_GO)
    return Go(program, match[1])


def needed_go(go_mod: str) -> str:
    """Return the Go version that the text of a go.mod requires, such as `1.26.0`; `1` if it requires none."""
    match = re.search(r"^go (\S+)$", go_mod, re.MULTILINE)
    return match[1] if match else "1"


def is_older(version: str, other: str) -> bool:
    """Return True if a Go version is older than another; `1.26` and `1.26.0` are equal."""

    def numbers(text: str) -> tuple[int, ...]:
        parts = [int(part) for part in re.findall(r"\d+", text)[:3]]
        return tuple(parts + [0] * (3 - len(parts)))

    return numbers(version) < numbers(other)


def build(module: Module, go: Go, output_folder: Path, progress: Progress) -> None:
    """Build every program of a module into a folder.

    Raises:
        TwinError: Go is too old, the network or the disk fails, or the code does not compile.
    """
    required = needed_go((module.folder / "go.mod").read_text())
    if is_older(go.version, required) and os.environ.get("GOTOOLCHAIN", "auto") == "local":
        raise TwinError(
            f"{module.name} needs Go {required} or newer; {go.program} is {go.version}.", INSTALL_GO
        )
    action = f"Building {module.name} {module.version} from source".replace("  ", " ")
    work = output_folder / "work"  # Go's default in /tmp would remain after a kill
    work.mkdir()
    with progress.step(action) as step:
        code, lines = _run(command(module, go, output_folder), module.folder, work, step)
    shutil.rmtree(work, ignore_errors=True)
    if code:
        raise explain(module.name, lines, output_folder)
    missing = [name for name in module.programs if not (output_folder / name).is_file()]
    if missing:
        raise TwinError(
            f"go built {module.name} without {', '.join(missing)}.", "Please report it."
        )


def flags(module: Module) -> list[str]:
    """Return the flags of `go build` that affect the result; they are part of the cache key."""
    tags = ["-tags", module.tags] if module.tags else []
    return ["-mod=readonly", "-trimpath", "-buildvcs=false", *tags, "-ldflags", module.linker_flags]


def command(module: Module, go: Go, output_folder: Path) -> list[str]:
    """Return the complete command, to run in the module's folder."""
    # With one package -o names the file: the package `server` would produce a program `server`.
    is_single = len(module.programs) == 1
    output = f"{output_folder}/{next(iter(module.programs))}" if is_single else f"{output_folder}/"
    return [go.program, "build", "-v", *flags(module), "-o", output, *module.programs.values()]


def explain(name: str, lines: Iterable[str], output_folder: Path) -> TwinError:
    """Convert the last lines of a failed `go build` into an error with a fix."""
    last_lines = list(lines)
    text = "\n".join(last_lines)
    if NO_SPACE.search(text):
        return TwinError(
            f"The disk filled up while building {name}.",
            f"Free some space (a cold build of everything takes about 8 GB) in these folders:\n"
            f"  {output_folder.parent}\n"
            f"  the folders that `go env GOCACHE GOMODCACHE` prints",
        )
    if NO_NETWORK.search(text):
        return TwinError(
            f"The Go modules of {name} could not be downloaded:\n{_tail(last_lines)}",
            "Check the network, or set GOPROXY to a module proxy that can be reached.",
        )
    if KILLED.search(text):
        return TwinError(
            f"The compiler was killed while building {name}; most likely memory ran out.",
            "Free some memory (2 GB are needed), or set GOFLAGS=-p=1, and run the command again.",
        )
    return TwinError(f"go could not build {name}:\n{_tail(last_lines)}")


def _tail(lines: list[str]) -> str:
    return "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])


def _run(arguments: list[str], folder: Path, work: Path, step: Step) -> tuple[int, deque[str]]:
    """Run go and report its progress; return its exit code and last lines."""
    settings = {"CGO_ENABLED": "0", "GOWORK": "off", "GO111MODULE": "on", "GOTMPDIR": str(work)}
    environment = os.environ | settings
    # Go ends with this process: otherwise it would run for minutes and write to an abandoned folder.
    wrapper = ["setpriv", "--pdeathsig=KILL", "--"] if shutil.which("setpriv") else []
    process = subprocess.Popen(
        [*wrapper, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # so that the compilers can be killed with it
    )
    try:
        last_lines = _follow(process, step)
        return process.wait(), last_lines
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    finally:
        if process.stderr:
            process.stderr.close()


def _follow(process: subprocess.Popen[str], step: Step) -> deque[str]:
    last_lines: deque[str] = deque(maxlen=MAX_LINES)
    started_at = last_note_at = time.monotonic()
    downloads = packages = 0
    for line in process.stderr or ():
        if line.startswith("go: downloading "):
            downloads += 1
        elif re.fullmatch(r"[\w./~+-]+\s*", line):  # -v prints the name of a compiled package
            packages += 1
        else:
            last_lines.append(line.rstrip())
        now = time.monotonic()
        if now - last_note_at >= NOTE_SECONDS:
            last_note_at = now
            step.note(
                f"{packages} packages compiled, {downloads} modules downloaded, {now - started_at:.0f} s"
            )
    return last_lines
