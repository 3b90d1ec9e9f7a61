"""Lets local images answer for published ones, which a machine without a way to a registry cannot pull.

An alias is a second name in a machine's containerd, so that pods keep the names they have in a cloud. The
kubelet finds the image present and asks no registry, whatever the registry is called.
"""

import subprocess
from collections import defaultdict
from collections.abc import Mapping

from everstep.errors import EverstepError
from twin.nodes import files, lock, processes
from twin.nodes.layout import Layout
from twin.nodes.machine_config import CONTAINERD_SOCKET

PATIENCE_SECONDS = 10.0
NAMESPACE = "k8s.io"


def all_of(layout: Layout) -> dict[str, str]:
    """Return the local references by the published ones they answer for."""
    stored = files.read_json(layout.aliases) or {}
    return {str(published): str(local) for published, local in stored.items()}


def add(layout: Layout, aliases: Mapping[str, str], running: Mapping[str, int]) -> None:
    """Remember aliases for machines to come, and make them on those that run.

    Args:
        layout: the twin's.
        aliases: local references by published ones.
        running: the first processes of the machines that run, by name.

    Raises:
        EverstepError: a machine's containerd refuses one.
    """
    with lock.held(
        layout.aliases.with_suffix(".lock"),
        "image aliases",
        "alias",
        patience_seconds=PATIENCE_SECONDS,
    ):
        files.write_json(layout.aliases, all_of(layout) | dict(aliases))
    for name, pid in running.items():
        for command in commands(aliases):
            _run(["nsenter", "--mount", f"--target={pid}", *command], name)


def commands(aliases: Mapping[str, str]) -> list[list[str]]:
    """Return the commands that make aliases, one for each local image, to be run in a machine."""
    published: dict[str, list[str]] = defaultdict(list)
    for name, local in sorted(aliases.items()):
        if name != local:
            published[local].append(name)
    ctr = ["ctr", f"--address={CONTAINERD_SOCKET}", f"--namespace={NAMESPACE}"]
    return [[*ctr, "images", "tag", "--force", local, *names] for local, names in published.items()]


def _run(command: list[str], name: str) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=processes.ENVIRONMENT
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        raise EverstepError(
            f"The machine {name!r} cannot let {command[-2]} answer for {command[-1]}: {said}",
            "Local images are built by `python -m twin.images`; a running machine keeps those it booted with.",
        )
