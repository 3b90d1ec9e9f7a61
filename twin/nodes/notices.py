"""What a cloud tells a machine before it takes it away, and the taking.

A notice is a file that the machine sees and its metadata service answers from. It outlives whoever gave it: a
machine whose time has come is found by its notice, so that a daemon that was killed can go on where it stopped.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from everstep.errors import EverstepError
from twin.nodes import cluster, files
from twin.nodes.api import Api, ApiError
from twin.nodes.layout import MachineLayout
from twin.nodes.model import MachineSpec

DRAIN_EVERY_SECONDS = 1.0
POLL_SECONDS = 0.05
# What AKS puts on a node that is about to be preempted, before it drains it.
AKS_TAINT = {
    "key": "remediator.kubernetes.azure.com/unschedulable",
    "value": "true",
    "effect": "NoSchedule",
}


@dataclass(frozen=True)
class Notice:
    """That a machine will be taken.

    Attributes:
        event: the announcement's own id.
        at: when it was given, seconds since the epoch.
        not_before: when the machine goes.
        take: whether it does go; one may announce and relent.
    """

    event: str
    at: float
    not_before: float
    take: bool

    @classmethod
    def load(cls, path: Path) -> "Notice | None":
        """Return what a file announces; None where there is none."""
        stored = files.read_json(path)
        try:
            return cls.parse(stored) if stored else None
        except (KeyError, TypeError, ValueError):
            return None

    @classmethod
    def parse(cls, stored: dict[str, Any]) -> "Notice":
        """Return the notice that JSON stands for.

        Raises:
            KeyError, TypeError, ValueError: it stands for none.
        """
        at, not_before = float(stored["at"]), float(stored["not_before"])
        return cls(str(stored["event"]), at, not_before, bool(stored["take"]))


def give(spec: MachineSpec, folder: MachineLayout, seconds: float, *, take: bool) -> Notice:
    """Announce that a machine goes in so many seconds; one that was announced already keeps its time.

    Raises:
        EverstepError: no cloud stands behind the machine, so nobody could be told.
    """
    if not spec.cloud:
        raise EverstepError(
            f"The machine {spec.name!r} belongs to no cloud, so there is nobody who could give notice.",
            "`vanish` takes it without a word.",
        )
    before = Notice.load(folder.notice)
    if before and (before.take or not take):
        return before
    now = time.time()
    notice = Notice(str(uuid.uuid4()).upper(), now, now + seconds, take)
    files.write_json(folder.notice, asdict(notice))
    return notice


def acknowledged(folder: MachineLayout, notice: Notice) -> bool:
    """Whether a program on the machine has said that it is ready to go."""
    return (files.read_json(folder.acknowledgement) or {}).get("event") == notice.event


def is_due(folder: MachineLayout, notice: Notice, late_seconds: float = 0.0) -> bool:
    """Whether the machine is to go now, or should have gone so many seconds ago."""
    return acknowledged(folder, notice) or time.time() >= notice.not_before + late_seconds


def await_due(folder: MachineLayout, notice: Notice, meanwhile: Callable[[], None]) -> None:
    """Wait until a machine's time has come; every second or so do what is to be done meanwhile."""
    next_drain = 0.0
    while not is_due(folder, notice):
        if time.monotonic() >= next_drain:
            meanwhile()
            next_drain = time.monotonic() + DRAIN_EVERY_SECONDS
        time.sleep(POLL_SECONDS)


def prepare(api: Api, spec: MachineSpec) -> None:
    """Do what the cloud does for a Node that is announced: EKS and AKS both drain it as far as time allows.

    Whatever fails is left: neither cloud waits for an unwilling cluster.
    """
    try:
        if spec.cloud == "azure":
            _taint(api, spec.name)
        cluster.begin_drain(api, spec.name)
    except (ApiError, OSError):
        return


def _taint(api: Api, name: str) -> None:
    path = f"{cluster.NODES}/{name}"
    taints = api.get(path)["spec"].get("taints", [])
    if all(taint["key"] != AKS_TAINT["key"] for taint in taints):
        api.merge(path, {"spec": {"taints": [*taints, AKS_TAINT]}})
