"""Termination notices of spot machines.

A notice is a file that the machine's metadata service reads. It outlives the process that wrote it: after a
restart, the capacity daemon finds the machines to terminate by their notices.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.files import DamagedFileError
from cloudtwin.kubernetes_api import ApiError, KubernetesClient
from cloudtwin.nodes import node_objects
from cloudtwin.nodes.layout import MachineLayout
from cloudtwin.nodes.model import MachineSpec

DRAIN_PERIOD_SECONDS = 1.0
NOTICE_POLL_SECONDS = 0.05
# AKS sets this taint on a node before it is preempted, and then drains it.
AKS_TAINT = {
    "key": "remediator.kubernetes.azure.com/unschedulable",
    "value": "true",
    "effect": "NoSchedule",
}


@dataclass(frozen=True)
class Notice:
    """Announcement that a machine will be terminated.

    Attributes:
        event: id of the announcement.
        announced_at: time of the announcement, seconds since the epoch.
        not_before: time of the termination, seconds since the epoch.
        terminate: True if the machine is terminated at that time; False if the termination is only announced.
    """

    event: str
    announced_at: float
    not_before: float
    terminate: bool

    @classmethod
    def load(cls, path: Path) -> "Notice | None":
        """Return the notice in a file, or None if there is no such file.

        Raises:
            DamagedFileError: the file has no valid notice.
        """
        document = files.read_json(path)
        try:
            return None if document is None else cls.parse(document)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedFileError(path, f"it contains no valid notice: {error!r}") from None

    @classmethod
    def parse(cls, document: dict[str, Any]) -> "Notice":
        """Return the notice that a JSON object describes.

        Raises:
            KeyError, TypeError, ValueError: the object does not describe a notice.
        """
        announced_at, not_before = float(document["announced_at"]), float(document["not_before"])
        return cls(str(document["event"]), announced_at, not_before, bool(document["terminate"]))


def require_cloud(spec: MachineSpec) -> None:
    """Check that a machine has a metadata service.

    Raises:
        TwinError: the machine belongs to no cloud.
    """
    if not spec.cloud:
        raise TwinError(
            f"The machine {spec.name!r} belongs to no cloud, so there is no service that could give notice.",
            "`vanish` terminates it without notice.",
        )


def announce(
    spec: MachineSpec, folder: MachineLayout, seconds: float, *, terminate: bool
) -> Notice:
    """Announce the termination of a machine after a number of seconds; return the notice.

    An earlier notice is returned unchanged, unless it only announces and the new one also terminates the machine.

    Raises:
        TwinError: the machine belongs to no cloud, so it has no metadata service.
    """
    require_cloud(spec)
    previous = Notice.load(folder.notice)
    if previous and (previous.terminate or not terminate):
        return previous
    now = time.time()
    notice = Notice(str(uuid.uuid4()).upper(), now, now + seconds, terminate)
    files.write_json(folder.notice, asdict(notice))
    return notice


def is_acknowledged(folder: MachineLayout, notice: Notice) -> bool:
    """Return True if a program on the machine has acknowledged the notice."""
    # The machine wrote the file: if it is damaged, the cloud has received no acknowledgement and waits.
    acknowledgement = files.read_json_if_valid(folder.acknowledgement) or {}
    return acknowledgement.get("event") == notice.event


def is_due(folder: MachineLayout, notice: Notice, late_seconds: float = 0.0) -> bool:
    """Return True if the notice is acknowledged, or its time passed at least `late_seconds` ago."""
    return is_acknowledged(folder, notice) or time.time() >= notice.not_before + late_seconds


def await_due(folder: MachineLayout, notice: Notice, drain: Callable[[], None]) -> None:
    """Wait until the termination is due, and call `drain` every second."""
    next_drain = 0.0
    while not is_due(folder, notice):
        if time.monotonic() >= next_drain:
            drain()
            next_drain = time.monotonic() + DRAIN_PERIOD_SECONDS
        time.sleep(NOTICE_POLL_SECONDS)


def begin_drain(client: KubernetesClient, spec: MachineSpec) -> None:
    """Drain a Node after a notice, as EKS and AKS do.

    Errors are ignored: neither cloud waits for the cluster.
    """
    try:
        if spec.cloud == "azure":
            _taint(client, spec.name)
        node_objects.begin_drain(client, spec.name)
    except (ApiError, OSError):
        return


def _taint(client: KubernetesClient, name: str) -> None:
    path = f"{node_objects.NODES}/{name}"
    taints = client.get(path)["spec"].get("taints", [])
    if all(taint["key"] != AKS_TAINT["key"] for taint in taints):
        client.merge(path, {"spec": {"taints": [*taints, AKS_TAINT]}})
