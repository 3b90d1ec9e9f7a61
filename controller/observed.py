"""What is seen of a job's pods and of the nodes they are on, read from their JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from controller.clock import parse_time

WORKER_CONTAINER = (
    "elasticjob-worker"  # the container whose exit code counts; upstream fixed its name
)
BOUNDS_ANNOTATION = "everstep.dev/nnodes"
"""On a worker's pod: the job's bounds as they are now, for an agent that reads them while it runs."""

# A pod that one of these ended did nothing wrong: its machine was taken or would not have it.
DISRUPTIONS = frozenset(
    {
        "Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity",
        "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfnvidia.com/gpu",
    }
)  # fmt: skip
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, kw_only=True)
class Pod:
    """One worker's pod.

    Attributes:
        phase: as Kubernetes says it, with two corrections: `Succeeded` means that the training
            container ended with 0 by itself; `Failed` is every other end.
        exit_code: the training container's, once it ended; None where that is not known.
        disrupted: whether its end was its machine's doing.
        waiting: why it does not run yet, where Kubernetes says so.
        crash_looping: whether its kubelet restarts it again and again.
        bounds: the `min:max` of the group that it was last told; empty where it never was.
    """

    name: str
    uid: str
    index: int
    phase: str
    node: str | None = None
    deleting: bool = False
    created: datetime
    started: datetime | None = None
    finished: datetime | None = None
    exit_code: int | None = None
    out_of_memory: bool = False
    disrupted: bool = False
    reason: str = ""
    waiting: str = ""
    restarts: int = 0
    crash_looping: bool = False
    bounds: str = ""

    @property
    def over(self) -> bool:
        """Whether it has ended for good."""
        return self.phase in ("Succeeded", "Failed")


class Taint(NamedTuple):
    """What keeps pods off a machine that do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine.

    Attributes:
        unready_since: None while it is Ready.
        cordoned: whether it takes no new pods, as while it is drained.
        taints: key, value and effect of each.
        allocatable: what its pods may ask for in all, in Kubernetes' own words ("500m", "2Gi").
    """

    name: str
    unready_since: datetime | None = None
    out_of_service: bool = False
    cordoned: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)

    @property
    def takes_pods(self) -> bool:
        """Whether it is well and open to new pods."""
        return self.unready_since is None and not self.out_of_service and not self.cordoned


def read_node(source: Mapping[str, Any]) -> Node:
    """Read a node from its JSON."""
    conditions = source.get("status", {}).get("conditions") or ()
    ready = next((item for item in conditions if item["type"] == "Ready"), None)
    spec = source.get("spec") or {}
    taints = tuple(
        Taint(taint["key"], taint.get("value", ""), taint["effect"])
        for taint in spec.get("taints") or ()
    )
    unready_since = None
    if ready is not None and ready["status"] != "True":
        unready_since = parse_time(ready.get("lastTransitionTime"))
    return Node(
        name=source["metadata"]["name"],
        unready_since=unready_since,
        out_of_service=any(taint.key == OUT_OF_SERVICE for taint in taints),
        cordoned=bool(spec.get("unschedulable")),
        labels=source["metadata"].get("labels") or {},
        taints=taints,
        allocatable=source.get("status", {}).get("allocatable") or {},
    )


def read_pod(source: Mapping[str, Any]) -> Pod:
    """Read a worker's pod from its JSON; it must carry the label `replica-index`."""
    metadata, status = source["metadata"], source.get("status") or {}
    container = _worker_status(status)
    state = container.get("state") or {}
    ended = state.get("terminated") or {}
    last = (container.get("lastState") or {}).get("terminated") or {}
    crash_looping = (state.get("waiting") or {}).get("reason") == "CrashLoopBackOff"
    exit_code = ended.get("exitCode", last.get("exitCode") if crash_looping else None)
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        index=int(metadata["labels"]["replica-index"]),
        phase=_phase(status.get("phase", "Pending"), metadata, ended, disrupted=_disrupted(status)),
        node=source.get("spec", {}).get("nodeName"),
        deleting="deletionTimestamp" in metadata,
        created=_required_time(metadata["creationTimestamp"]),
        started=parse_time((ended or state.get("running") or {}).get("startedAt")),
        finished=parse_time(ended.get("finishedAt")),
        exit_code=exit_code,
        out_of_memory=ended.get("reason") == "OOMKilled",
        disrupted=_disrupted(status),
        reason=status.get("reason", ""),
        waiting=_why_waiting(status, state),
        restarts=container.get("restartCount", 0),
        crash_looping=crash_looping,
        bounds=(metadata.get("annotations") or {}).get(BOUNDS_ANNOTATION, ""),
    )


def _phase(
    phase: str, metadata: Mapping[str, Any], ended: Mapping[str, Any], *, disrupted: bool
) -> str:
    """Correct the phase for what it means to a training.

    A pod that is asked to go and then exits with 0 did not finish: it obeyed. One whose trainer
    finished while a sidecar failed did.
    """
    if "deletionTimestamp" not in metadata:
        finished_itself = ended.get("exitCode") == 0 and not disrupted
        return "Succeeded" if phase == "Failed" and finished_itself else phase
    if phase != "Succeeded":
        return phase
    grace = timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    asked_to_go = _required_time(metadata["deletionTimestamp"]) - grace
    finished = parse_time(ended.get("finishedAt"))
    return phase if finished is not None and finished < asked_to_go else "Failed"


def _disrupted(status: Mapping[str, Any]) -> bool:
    targeted = any(
        item["type"] == "DisruptionTarget" and item["status"] == "True"
        for item in status.get("conditions") or ()
    )
    return targeted or status.get("reason") in DISRUPTIONS


def _worker_status(status: Mapping[str, Any]) -> Mapping[str, Any]:
    for container in status.get("containerStatuses") or ():
        if container["name"] == WORKER_CONTAINER:
            found: Mapping[str, Any] = container
            return found
    return {}


def _why_waiting(status: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    waiting = state.get("waiting") or {}
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        return ": ".join(filter(None, (waiting["reason"], waiting.get("message"))))
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return ": ".join(filter(None, (condition.get("reason"), condition.get("message"))))
    return ""


def _required_time(text: str) -> datetime:
    moment = parse_time(text)
    assert moment is not None  # noqa: S101  (the API server sets these times on every object)
    return moment
