"""The programs that build images and push them: podman, buildah or docker. Only their command lines differ."""

import os
import shutil
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep.errors import EverstepError
from everstep.progress import Step

PLATFORM = "linux/amd64"  # platform of the GPU nodes and of the CUDA base image
PROBE_SECONDS = 20
SHOWN_LINES = 15
KEPT_LINES = 200


@dataclass(frozen=True)
class ImageBuilder:
    """A program that builds images from Dockerfiles and pushes them.

    Attributes:
        program: its name on PATH.
        probe: arguments that succeed if it can build here.
        build_options: further options of its `build`.
        push_options: further options of its `push`.
        plain_http: option of its `push` for a registry on this machine, which has no certificate.
    """

    program: str
    probe: tuple[str, ...]
    build_options: tuple[str, ...] = ()
    push_options: tuple[str, ...] = ()
    plain_http: tuple[str, ...] = ()

    def works(self) -> bool:
        """Return True if the program is installed and can build here."""
        if shutil.which(self.program) is None:
            return False
        try:
            result = subprocess.run(
                [self.program, *self.probe], capture_output=True, timeout=PROBE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return result.returncode == 0

    def build(self, context: Path, arguments: Mapping[str, str], tag: str, step: Step) -> None:
        """Build the Dockerfile at the top of a folder under this tag.

        Args:
            context: the build context.
            arguments: build arguments by name.
            tag: complete name of the image.
            step: receiver of the program's output.

        Raises:
            EverstepError: the build fails; the error has the end of the output.
        """
        build_arguments = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        options = [f"--platform={PLATFORM}", *self.build_options, *build_arguments, f"--tag={tag}"]
        self._run(["build", *options, str(context)], f"build {tag}", step)

    def push(self, tag: str, step: Step) -> None:
        """Push an image to the registry in its name.

        Raises:
            EverstepError: the push fails; the error has the end of the output.
        """
        from cloudtwin.facade import is_this_machine

        local = self.plain_http if is_this_machine(tag.partition("/")[0]) else ()
        self._run(["push", *self.push_options, *local, tag], f"push {tag}", step)

    def _run(self, arguments: Sequence[str], action: str, step: Step) -> None:
        last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        with subprocess.Popen(
            [self.program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Buildah's default isolation needs a container runtime, and fails for root in a container.
            env={"BUILDAH_ISOLATION": "chroot", **os.environ},
        ) as process:
            try:
                for line in process.stdout or ():
                    if line := line.strip():
                        last_lines.append(line)
                        step.note(line)
            except BaseException:
                process.terminate()
                raise
        if process.returncode:
            raise _failure(self.program, action, list(last_lines))


PLAIN_HTTP = ("--tls-verify=false",)
BUILDERS: tuple[ImageBuilder, ...] = (
    ImageBuilder("docker", ("info",)),
    ImageBuilder("podman", ("info",), ("--timestamp=0",), ("--format=oci",), PLAIN_HTTP),
    ImageBuilder(
        "buildah", ("info",), ("--layers", "--timestamp=0"), ("--format=oci",), PLAIN_HTTP
    ),
)
"""All builders, the preferred one first. `--timestamp`: equal contents give equal digests."""


def find_builder(name: str = "") -> ImageBuilder:
    """Return the builder with this name, or the first builder that works here.

    Raises:
        EverstepError: there is no builder with this name, or no builder works here; the error has the valid names or
            the programs to install.
    """
    candidates = [builder for builder in BUILDERS if not name or builder.program == name]
    if not candidates:
        names = ", ".join(builder.program for builder in BUILDERS)
        raise EverstepError(f"there is no builder named {name!r}", f"Valid builders: {names}.")
    working_builder = next((candidate for candidate in candidates if candidate.works()), None)
    if working_builder is not None:
        return working_builder
    probes = ", ".join(
        f"`{candidate.program} {' '.join(candidate.probe)}`" for candidate in candidates
    )
    raise EverstepError(
        f"images cannot be built here: {probes} failed",
        "Install docker, podman or buildah, and start the daemon if it needs one "
        "(Debian: apt-get install buildah).",
    )


def _failure(program: str, action: str, lines: Sequence[str]) -> EverstepError:
    tail = "\n".join(f"  {line}" for line in lines[-SHOWN_LINES:])
    text = "\n".join(lines).lower()
    if "no space left" in text:
        fix = "Free some space on the disk of the builder's storage (a CUDA base needs 15 GB)."
    elif _lacks_login(text):
        fix = f"Log in to that registry with `{program} login`, and run the same command again."
    else:
        fix = "Correct the cause and run the same command again: finished images are kept."
    return EverstepError(f"{program} could not {action}:\n{tail}", fix)


def _lacks_login(text: str) -> bool:
    """Return True if a registry refused access; "permission denied" is about a file or a socket."""
    text = text.replace("permission denied", "")
    return any(word in text for word in ("unauthorized", "denied", "no basic auth"))
