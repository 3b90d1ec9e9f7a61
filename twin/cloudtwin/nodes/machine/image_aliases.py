"""Aliases of local images that stand in for published ones, which a machine without access to registries cannot pull.

An alias is a second name in a machine's containerd, so that pods use the same names as in a cloud. Unless a
pod's imagePullPolicy is Always, the kubelet finds the image present and contacts no registry.
"""

import re
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence

from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.images.golden import KUBELET_NAMESPACE
from cloudtwin.nodes import lock
from cloudtwin.nodes.layout import Layout
from cloudtwin.nodes.linux import processes
from cloudtwin.nodes.machine.configuration import CONTAINERD_SOCKET

ALIASES_LOCK_SECONDS = 60.0
# Host, path, tag and digest. Source: the grammar in github.com/distribution/reference 0.6, 2026-11-27.
REFERENCE = re.compile(
    r"([a-zA-Z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
TAG_OPTION = "--force"


def all_of(layout: Layout) -> dict[str, str]:
    """Return the local references, by published reference."""
    document = files.read_json(layout.aliases) or {}
    return {str(published): str(local) for published, local in document.items()}


def add(layout: Layout, aliases: Mapping[str, str], pids: Mapping[str, int]) -> None:
    """Store aliases for later machines, and create them on running machines.

    Args:
        layout: the twin's folder.
        aliases: local references, by published reference.
        pids: ids of the running machines' init processes, by name.

    Raises:
        TwinError: an alias is not a pair of image references, or a machine's containerd refuses it.
    """
    for reference in (text for pair in aliases.items() for text in pair):
        if not REFERENCE.fullmatch(reference):
            raise TwinError(
                f"{reference!r} in the image aliases is not an image reference.",
                "Write references such as docker.io/library/busybox:1.36 and localhost/busybox:local.",
            )
    with lock.held(
        layout.aliases.with_suffix(".lock"),
        "image aliases",
        "alias",
        timeout_seconds=ALIASES_LOCK_SECONDS,
    ):
        files.write_json(layout.aliases, all_of(layout) | dict(aliases))
    for name, pid in pids.items():
        if problems := create(aliases, ["nsenter", "--mount", f"--target={pid}"]):
            raise TwinError(
                "\n".join(f"The machine {name!r} {problem}" for problem in problems),
                "A running machine has the images that it booted with. Restart it to use newer images.",
            )


def create(aliases: Mapping[str, str], enter: Sequence[str] = ()) -> list[str]:
    """Create aliases in a machine; return the images that it cannot use, with the output of the command.

    Args:
        aliases: local references, by published reference.
        enter: command prefix that enters the machine; empty if this process runs in it.
    """
    children = [
        (
            command,
            subprocess.Popen(
                [*enter, *command],
                env=processes.ENVIRONMENT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            ),
        )
        for command in commands(aliases)
    ]
    outputs = [(command, child.communicate()[0], child.returncode) for command, child in children]
    return [_failure(command, output, status) for command, output, status in outputs if status]


def commands(aliases: Mapping[str, str]) -> list[list[str]]:
    """Return the commands that create aliases in a machine, one for each local image."""
    names_by_image: dict[str, list[str]] = defaultdict(list)
    for name, local in sorted(aliases.items()):
        if name != local:
            names_by_image[local].append(name)
    ctr = ["ctr", f"--address={CONTAINERD_SOCKET}", f"--namespace={KUBELET_NAMESPACE}"]
    return [
        [*ctr, "images", "tag", TAG_OPTION, local, *names]
        for local, names in names_by_image.items()
    ]


def _failure(command: list[str], output: str, status: int) -> str:
    reason = output.strip() or f"exit status {status}"
    local, *published = command[command.index(TAG_OPTION) + 1 :]
    return f"cannot use {local} in place of {', '.join(published)}: {reason}"
